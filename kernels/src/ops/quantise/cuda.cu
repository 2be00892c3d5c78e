// Quantisation of f32 rows to int8 planes: four elements a thread, eight threads a block of 32.
#include "memra.cuh"
#include "quantise_block.cuh"

// One block of threads a row. `quads` is the length of a row over four.
extern "C" __global__ void __launch_bounds__(256)
quantise_row(const float4* __restrict__ x, u32* quants, float* scales, i16* sums, u32 quads) {
    const Planes planes = {quants, scales, sums};
    const u32 start = blockIdx.x * quads;
    for (u32 first = 0; first < quads; first += blockDim.x) {
        const u32 quad = first + threadIdx.x;
        const bool is_inside = quad < quads;
        const float4 v = is_inside ? __ldg(x + start + quad) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        quantise_quad(v, start + quad, is_inside, planes);
    }
}

// Rows end to end: one quad a thread. `quads` is the number of all.
extern "C" __global__ void __launch_bounds__(128)
quantise_quads(const float4* __restrict__ x, u32* quants, float* scales, i16* sums, u32 quads) {
    const Planes planes = {quants, scales, sums};
    const u32 quad = blockIdx.x * blockDim.x + threadIdx.x;
    const bool is_inside = quad < quads;
    const float4 v = is_inside ? __ldg(x + quad) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    quantise_quad(v, quad, is_inside, planes);
}
