// Quantisation of blocks of 32: eight lanes a block, four elements a lane.
#pragma once
#include "memra.cuh"

// Bits of 2^-120: blocks with a smaller maximum become zeros.
constexpr u32 QUANT_FLUSH = 0x03800000u;

// Addresses of int8 planes.
struct Planes {
    u32* quants;   // four a word
    float* scales; // one a block
    i16* sums;     // one a block
};

// Quantises four elements of a block whose other elements stand in the other lanes of an aligned group of eight, and writes
// them as the quad of this index. All 32 lanes of a warp call it; a lane whose quad is past the end passes `is_inside` false,
// for whole groups at a time.
__device__ __forceinline__ void quantise_quad(float4 v, u32 quad, bool is_inside, const Planes& planes) {
    float maximum = fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
#pragma unroll
    for (int distance = 4; distance > 0; distance /= 2) {
        maximum = fmaxf(maximum, __shfl_xor_sync(0xffffffffu, maximum, distance));
    }
    const bool is_zero = maximum < __uint_as_float(QUANT_FLUSH);
    const float inverse = is_zero ? 0.0f : __fdiv_rn(127.0f, maximum);
    const u32 q0 = (u32)__float2int_rn(__fmul_rn(v.x, inverse)) & 0xffu;
    const u32 q1 = (u32)__float2int_rn(__fmul_rn(v.y, inverse)) & 0xffu;
    const u32 q2 = (u32)__float2int_rn(__fmul_rn(v.z, inverse)) & 0xffu;
    const u32 q3 = (u32)__float2int_rn(__fmul_rn(v.w, inverse)) & 0xffu;
    const u32 word = q0 | q1 << 8 | q2 << 16 | q3 << 24;
    int sum = dot4((int)word, 0x01010101, 0);
#pragma unroll
    for (int distance = 4; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if (!is_inside) return;
    planes.quants[quad] = word;
    if (quad % 8 == 0) {
        planes.scales[quad / 8] = is_zero ? 0.0f : __fdiv_rn(maximum, 127.0f);
        planes.sums[quad / 8] = (i16)sum;
    }
}
