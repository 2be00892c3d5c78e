// RMS norm and quantisation, one block of 128 threads a row: thread t owns chain t, and the row is read twice.
#include "memra.cuh"
#include "quantise_block.cuh"
#include "rms_chain.cuh"

extern "C" __global__ void __launch_bounds__(128)
rms_norm_quantise_row(const float* __restrict__ x, const float* __restrict__ weight, u32* quants, float* scales, i16* sums,
                      u32 hidden, float epsilon) {
    const Planes planes = {quants, scales, sums};
    const float* row = x + (u64)blockIdx.x * hidden;
    const float factor = rms_row_factor(row, hidden, epsilon);
    const u32 quads = hidden / 4;
    for (u32 first = 0; first < quads; first += CHAINS) {
        const u32 quad = first + threadIdx.x;
        const bool is_inside = quad < quads;
        float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (is_inside) {
            const float4 w = __ldg(reinterpret_cast<const float4*>(weight) + quad);
            v = rms_value(__ldg(reinterpret_cast<const float4*>(row) + quad), factor, w);
        }
        quantise_quad(v, blockIdx.x * quads + quad, is_inside, planes);
    }
}
