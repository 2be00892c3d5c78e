// The shared exponential, operation by operation as the order classes define it.
#pragma once
#include "memra.cuh"

// Bits of the constants, as they stand in the definition.
constexpr u32 EXP_LOWEST = 0xc2ae0000u;
constexpr u32 EXP_HIGHEST = 0x42b00000u;
constexpr u32 LOG2_E = 0x3fb8aa3bu;
constexpr u32 LN2_HIGH = 0x3f318000u;
constexpr u32 LN2_LOW = 0xb95e8083u;
constexpr u32 EXP_COEFFICIENT_0 = 0x39506967u;
constexpr u32 EXP_COEFFICIENT_1 = 0x3ab743ceu;
constexpr u32 EXP_COEFFICIENT_2 = 0x3c088908u;
constexpr u32 EXP_COEFFICIENT_3 = 0x3d2aa9c1u;
constexpr u32 EXP_COEFFICIENT_4 = 0x3e2aaaaau;
constexpr u32 EXP_COEFFICIENT_5 = 0x3f000000u;

__device__ __forceinline__ float exp_shared(float x) {
    const float clamped = fminf(x, __uint_as_float(EXP_HIGHEST));
    const float n = rintf(__fmul_rn(clamped, __uint_as_float(LOG2_E)));
    float r = __fmaf_rn(n, -__uint_as_float(LN2_HIGH), clamped);
    r = __fmaf_rn(n, -__uint_as_float(LN2_LOW), r);
    float p = __uint_as_float(EXP_COEFFICIENT_0);
    p = __fmaf_rn(p, r, __uint_as_float(EXP_COEFFICIENT_1));
    p = __fmaf_rn(p, r, __uint_as_float(EXP_COEFFICIENT_2));
    p = __fmaf_rn(p, r, __uint_as_float(EXP_COEFFICIENT_3));
    p = __fmaf_rn(p, r, __uint_as_float(EXP_COEFFICIENT_4));
    p = __fmaf_rn(p, r, __uint_as_float(EXP_COEFFICIENT_5));
    const float y = __fadd_rn(__fmaf_rn(p, __fmul_rn(r, r), r), 1.0f);
    const float power = __uint_as_float((u32)(__float2int_rz(n) + 127) << 23);
    return x < __uint_as_float(EXP_LOWEST) ? 0.0f : __fmul_rn(y, power);
}
