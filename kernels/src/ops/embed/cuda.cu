// The rows that tokens name, as floats: row blockIdx.y of the output by blockDim.x threads of each block.
#include <cuda_fp16.h>
#include "memra.cuh"

// Stored q8_0: blocks of an f16 scale and 32 quants, 34 bytes, so that quants are aligned to two bytes. Four elements a
// thread; `quads` is the length of a row over four.
extern "C" __global__ void __launch_bounds__(128)
embed_q8_0(const u32* __restrict__ tokens, const u8* __restrict__ weight, float4* out, u32 quads) {
    const u32 quad = blockIdx.x * blockDim.x + threadIdx.x;
    if (quad >= quads) return;
    const u8* block = weight + ((u64)__ldg(tokens + blockIdx.y) * (quads / 8) + quad / 8) * 34;
    const u16* words = reinterpret_cast<const u16*>(block);
    const float scale = __half2float(__ushort_as_half(__ldg(words)));
    const u32 low = __ldg(words + 1 + quad % 8 * 2);
    const u32 high = __ldg(words + 2 + quad % 8 * 2);
    const float q0 = (float)(i8)(low & 0xffu), q1 = (float)(i8)(low >> 8);
    const float q2 = (float)(i8)(high & 0xffu), q3 = (float)(i8)(high >> 8);
    out[(u64)blockIdx.y * quads + quad] =
        make_float4(__fmul_rn(scale, q0), __fmul_rn(scale, q1), __fmul_rn(scale, q2), __fmul_rn(scale, q3));
}

// Stored floats, one element a thread; bits are copied.
extern "C" __global__ void __launch_bounds__(128)
embed_f32(const u32* __restrict__ tokens, const u32* __restrict__ weight, u32* out, u32 hidden) {
    const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= hidden) return;
    out[(u64)blockIdx.y * hidden + i] = __ldg(weight + (u64)__ldg(tokens + blockIdx.y) * hidden + i);
}
