// RMS norm and quantisation, one block of THREADS threads a row: the row is read once and stays in registers, as does the
// weight.
#include "memra.cuh"
#include "quantise_block.cuh"
#include "rms_chain.cuh"

// Longest row, in quads; a multiple of the threads.
constexpr u32 QUADS = 5120 / THREADS;

extern "C" __global__ void __launch_bounds__(THREADS)
rms_norm_quantise_row_registers(const float4* __restrict__ x, const float4* __restrict__ weight, u32* quants,
                                float* scales, i16* sums, u32 hidden, float epsilon) {
    extern __shared__ float4 shared[];
    const Planes planes = {quants, scales, sums};
    const u32 quads = hidden / 4;
    const u32 start = blockIdx.x * quads;
    float4 row[QUADS], scale[QUADS];
    load_row<THREADS>(row, x + start, quads);
    load_row<THREADS>(scale, weight, quads);
    const float factor = rms_row_factor<THREADS>(row, hidden, epsilon, shared);
#pragma unroll
    for (u32 i = 0; i < QUADS; ++i) {
        // Whole blocks of threads stop where the row ends, so that shuffles are met by all lanes.
        if (i * THREADS >= quads) break;
        const u32 quad = threadIdx.x + i * THREADS;
        quantise_quad(rms_value(row[i], factor, scale[i]), start + quad, quad < quads, planes);
    }
}
