// The factor of a row: squares in 128 chains, a pair tree over them, then the reciprocal of the root of the mean.
#pragma once
#include "memra.cuh"

// Element i belongs to chain i mod 128.
constexpr u32 CHAINS = 128;

// The sum of 128 chains in shared memory, as a pair tree at distances 64 to 1. Whole warps call it; every lane has the sum.
__device__ __forceinline__ float rms_tree(const float* chains) {
    const u32 lane = threadIdx.x % 32;
    const float low = __fadd_rn(chains[lane], chains[lane + 64]);
    const float high = __fadd_rn(chains[lane + 32], chains[lane + 96]);
    return warp_pair_tree(__fadd_rn(low, high));
}

__device__ __forceinline__ float rms_factor(float sum, u32 hidden, float epsilon) {
    return __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(sum, (float)hidden), epsilon)));
}

__device__ __forceinline__ float rms_value(float x, float factor, float weight) {
    return __fmul_rn(__fmul_rn(x, factor), weight);
}

__device__ __forceinline__ float4 rms_value(float4 x, float factor, float4 weight) {
    return make_float4(rms_value(x.x, factor, weight.x), rms_value(x.y, factor, weight.y),
                       rms_value(x.z, factor, weight.z), rms_value(x.w, factor, weight.w));
}

// The factor of a row by a block of 128 threads, one chain each, straight from memory.
__device__ __forceinline__ float rms_row_factor(const float* row, u32 hidden, float epsilon) {
    __shared__ float chains[CHAINS];
    float chain = 0.0f;
#pragma unroll 8
    for (u32 i = threadIdx.x; i < hidden; i += CHAINS) chain = __fmaf_rn(row[i], row[i], chain);
    chains[threadIdx.x] = chain;
    __syncthreads();
    return rms_factor(rms_tree(chains), hidden, epsilon);
}

// The factor of a row whose quad t + i * WIDTH stands in x[i] of thread t. The row goes to shared memory, filled up to
// whole lines of 128 with zeros, which change no chain; the first 128 threads then take a chain each.
template <u32 WIDTH, u32 QUADS>
__device__ __forceinline__ float rms_row_factor(const float4 (&x)[QUADS], u32 hidden, float epsilon, float4* shared) {
    __shared__ float chains[CHAINS];
    const u32 lines = (hidden + CHAINS - 1) / CHAINS;
#pragma unroll
    for (u32 i = 0; i < QUADS; ++i) {
        const u32 quad = threadIdx.x + i * WIDTH;
        if (quad < lines * (CHAINS / 4)) shared[quad] = x[i];
    }
    __syncthreads();
    if (threadIdx.x < CHAINS) {
        const float* own = reinterpret_cast<const float*>(shared) + threadIdx.x;
        float chain = 0.0f;
#pragma unroll 8
        for (u32 line = 0; line < lines; ++line) chain = __fmaf_rn(own[line * CHAINS], own[line * CHAINS], chain);
        chains[threadIdx.x] = chain;
    }
    __syncthreads();
    return rms_factor(rms_tree(chains), hidden, epsilon);
}

// Quads of a row in registers: quad t + i * WIDTH in v[i] of thread t, zeros past the end.
template <u32 WIDTH, u32 QUADS>
__device__ __forceinline__ void load_row(float4 (&v)[QUADS], const float4* row, u32 quads) {
#pragma unroll
    for (u32 i = 0; i < QUADS; ++i) {
        const u32 quad = threadIdx.x + i * WIDTH;
        v[i] = quad < quads ? __ldg(row + quad) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
}
