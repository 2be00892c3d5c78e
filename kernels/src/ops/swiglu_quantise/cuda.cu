// The gated product straight to int8 planes: four columns a thread, eight threads a block of 32.
#include "memra.cuh"
#include "quantise_block.cuh"
#include "swiglu.cuh"

// Quad `quad` of row `row`, `quads` a row.
__device__ __forceinline__ void gate_quad(const float4* gate_up, u32 row, u32 quad, u32 quads, const Planes& planes) {
    const bool is_inside = quad < quads;
    const float4* gates = gate_up + (u64)row * 2 * quads;
    float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (is_inside) v = swiglu(__ldg(gates + quad), __ldg(gates + quads + quad));
    quantise_quad(v, row * quads + quad, is_inside, planes);
}

// One block of threads a row.
extern "C" __global__ void __launch_bounds__(256)
swiglu_quantise_row(const float4* __restrict__ gate_up, u32* quants, float* scales, i16* sums, u32 quads) {
    const Planes planes = {quants, scales, sums};
    for (u32 first = 0; first < quads; first += blockDim.x) {
        gate_quad(gate_up, blockIdx.x, first + threadIdx.x, quads, planes);
    }
}

// One quad a thread; row blockIdx.y.
extern "C" __global__ void __launch_bounds__(128)
swiglu_quantise_quads(const float4* __restrict__ gate_up, u32* quants, float* scales, i16* sums, u32 quads) {
    const Planes planes = {quants, scales, sums};
    gate_quad(gate_up, blockIdx.y, blockIdx.x * blockDim.x + threadIdx.x, quads, planes);
}
