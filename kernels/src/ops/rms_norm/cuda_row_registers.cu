// RMS norm, one block of THREADS threads a row: the row is read once and stays in registers, as does the weight.
#include "memra.cuh"
#include "rms_chain.cuh"

// Longest row, in quads; a multiple of the threads.
constexpr u32 QUADS = 5120 / THREADS;

extern "C" __global__ void __launch_bounds__(THREADS)
rms_norm_row_registers(const float4* __restrict__ x, const float4* __restrict__ weight, float4* out, u32 hidden,
                       float epsilon) {
    extern __shared__ float4 shared[];
    const u32 quads = hidden / 4;
    const u64 start = (u64)blockIdx.x * quads;
    float4 row[QUADS], scale[QUADS];
    load_row<THREADS>(row, x + start, quads);
    load_row<THREADS>(scale, weight, quads);
    const float factor = rms_row_factor<THREADS>(row, hidden, epsilon, shared);
#pragma unroll
    for (u32 i = 0; i < QUADS; ++i) {
        const u32 quad = threadIdx.x + i * THREADS;
        if (quad < quads) out[start + quad] = rms_value(row[i], factor, scale[i]);
    }
}
