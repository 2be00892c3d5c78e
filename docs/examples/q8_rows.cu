// A product of one activation row with q8_0 weights that lie in a layout of their own: no tensor cores, eight lanes a row.
//
// ---
// schema = "memra-arm/1"
// contract = "matmul"
// entry = "q8_rows"
// order_class = "dot_i8_block32_chain8"
// archs = ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a"]
// layout = "a row: groups of 8 blocks, the first 16 quants of each, then the other 16; scales behind all rows"
// formats = ["q8_0"]
// rows = [1, 1]
//
// [launch]
// block = [256]
// grid = ["cdiv(n, 32)"]
// args = ["weight0", "quants", "scales", "residual", "out", "u32:n", "u32:k / 32"]
//
// [repack]
// entry = "q8_rows_pack"
// block = [256]
// grid = ["cdiv(n * cdiv(k, 256) * 8, 256)"]
// bytes = "n * cdiv(k, 256) * 272"
// args = ["u32:n", "u32:k / 32"]
// ---
#include "memra.cuh"
#include <cuda_fp16.h>

// Bytes of the quants of a group of eight blocks; its scales are eight halves behind the quants of all rows.
#define GROUP 256

// A thread a block: the stored block is a half and 32 bytes, and blocks begin at even addresses only.
extern "C" __global__ void __launch_bounds__(256) q8_rows_pack(const u8* stored, u8* packed, u32 n, u32 blocks) {
    const u32 groups = (blocks + 7) / 8;
    const u64 at = (u64)blockIdx.x * 256 + threadIdx.x;
    const u64 row = at / (groups * 8);
    if (row >= n) return;
    const u32 b = (u32)(at % (groups * 8));
    u8* quants = packed + (row * groups + b / 8) * GROUP + b % 8 * 16;
    u16* scales = (u16*)(packed + (u64)n * groups * GROUP);
    const u16* block = (const u16*)(stored + (row * blocks + b) * 34);
    scales[at] = b < blocks ? block[0] : 0;
    for (u32 i = 0; i < 16; i++) {
        const u16 pair = b < blocks ? block[1 + i] : 0;
        ((u16*)(quants + i / 8 * 128))[i % 8] = pair;
    }
}

// The exact dot of 16 signed bytes with 16 others, added to `sum`.
__device__ __forceinline__ int dot16(const uint4& w, const int4& x, int sum) {
    sum = __dp4a((int)w.x, x.x, sum);
    sum = __dp4a((int)w.y, x.y, sum);
    sum = __dp4a((int)w.z, x.z, sum);
    return __dp4a((int)w.w, x.w, sum);
}

// Eight lanes a row: lane c is chain c of the order class and takes blocks c, c + 8, ...
extern "C" __global__ void __launch_bounds__(256) q8_rows(const u8* weights, const i8* x, const float* x_scales,
                                                          const float* residual, float* out, u32 n, u32 blocks) {
    const u32 c = threadIdx.x % 8, row = blockIdx.x * 32 + threadIdx.x / 8, groups = (blocks + 7) / 8;
    const u64 first = (u64)min(row, n - 1) * groups;
    const u8* quants = weights + first * GROUP + c * 16;
    const u8* scales = weights + (u64)n * groups * GROUP + first * 16 + c * 2;
    float chain = 0.0f;
#pragma unroll 4
    for (u32 b = c; b < blocks; b += 8, quants += GROUP, scales += 16) {
        const uint4 low = load_weights(quants), high = load_weights(quants + 128);
        const float scale = __half2float(__ushort_as_half((u16)load_weights2(scales)));
        const int4* block = (const int4*)(x + 32 * b);
        const int sum = dot16(high, block[1], dot16(low, block[0], 0));
        chain = __fmaf_rn((float)sum, __fmul_rn(scale, x_scales[b]), chain);
    }
    for (int distance = 4; distance > 0; distance /= 2)
        chain = __fadd_rn(chain, __shfl_xor_sync(0xffffffffu, chain, distance));
    if (c == 0 && row < n) out[row] = residual ? __fadd_rn(chain, residual[row]) : chain;
}
