// The gated product of one element.
#pragma once
#include "exp.cuh"
#include "memra.cuh"

__device__ __forceinline__ float swiglu(float gate, float up) {
    return __fmul_rn(__fdiv_rn(gate, __fadd_rn(1.0f, exp_shared(-gate))), up);
}

__device__ __forceinline__ float4 swiglu(float4 gate, float4 up) {
    return make_float4(swiglu(gate.x, up.x), swiglu(gate.y, up.y), swiglu(gate.z, up.z), swiglu(gate.w, up.w));
}
