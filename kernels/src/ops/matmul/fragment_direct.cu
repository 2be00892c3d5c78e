// Products of float weights in fragment order for many columns: the program of `fragment_float.cu`, with the activation read through
// the first-level cache and not staged.
//
// A block of eight warps has 16 * ROW_TILES rows of the weight; warp w owns the units w, w + 8, ... of a row tile. A unit is 64
// elements of sixteen-bit weights or 128 of e4m3, which are widened to f16, exactly, and whose block scale is applied to the sum of
// the unit. The eight partial sums meet in shared memory and are added in a pair tree. A column of the result depends on its
// column of the activation alone, so its bits do not depend on how many there are.
//
// Lane l stands for row g = l / 4 (and g + 8) and, t = l % 4, for a run of 16 or 32 elements of the unit, so that an activation
// comes in loads of sixteen bytes.
//
// FORMAT_BF16, FORMAT_F16 or FORMAT_F8, ROW_TILES and DEPTH (units in flight) are defined by the variant.
#include "memra.cuh"
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#if defined(FORMAT_F8)
#define UNIT 128
#else
#define UNIT 64
#endif
#define RUN (UNIT / 4)
#define UNIT_BYTES 2048
#define X_LOADS (RUN / 8)

// Two e4m3 as two f16, exact.
__device__ __forceinline__ u32 widen(u32 pair) {
    u32 halves;
    asm("{.reg .b16 p; cvt.u16.u32 p, %1; cvt.rn.f16x2.e4m3x2 %0, p;}" : "=r"(halves) : "r"(pair));
    return halves;
}

__device__ __forceinline__ void multiply(float4& d, const uint4& a, const uint2& b) {
#if defined(FORMAT_BF16)
    mma_bf16(d, a, b);
#else
    mma_f16(d, a, b);
#endif
}

template <int NT>
__device__ __forceinline__ void product(const u8* __restrict__ weights, const float* __restrict__ scales,
                                        const uint2* __restrict__ places, const u16* __restrict__ x,
                                        const float* __restrict__ residual, float* __restrict__ out, int m, int k,
                                        int row_tiles, int width) {
    extern __shared__ float chains[];
    const int lane = threadIdx.x % 32, w = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const int units = (k + UNIT - 1) / UNIT, column = blockIdx.y * (8 * NT), first_tile = blockIdx.x * ROW_TILES;
    const u8* tiles[ROW_TILES];
#pragma unroll
    for (int r = 0; r < ROW_TILES; r++)
        tiles[r] = weights + (size_t)min(first_tile + r, row_tiles - 1) * units * UNIT_BYTES + lane * 16;

    float4 acc[ROW_TILES][NT] = {};
    uint4 ring[DEPTH][ROW_TILES][4];
#pragma unroll
    for (int d = 0; d < DEPTH; d++)
        if (w + 8 * d < units)
#pragma unroll
            for (int r = 0; r < ROW_TILES; r++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    ring[d][r][i] = load_weights(tiles[r] + (size_t)(w + 8 * d) * UNIT_BYTES + i * 512);

    for (int first = w; first < units; first += 8 * DEPTH) {
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            const int unit = first + 8 * d;
            if (unit >= units) break;
            uint4 now[ROW_TILES][4];
#pragma unroll
            for (int r = 0; r < ROW_TILES; r++)
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    now[r][i] = ring[d][r][i];
                    if (unit + 8 * DEPTH < units)
                        ring[d][r][i] = load_weights(tiles[r] + (size_t)(unit + 8 * DEPTH) * UNIT_BYTES + i * 512);
                }
#if defined(FORMAT_F8)
            float4 sum[ROW_TILES][NT] = {};
#endif
#pragma unroll
            for (int part = 0; part < X_LOADS / 2; part++) {
                uint4 b[NT][2];
#pragma unroll
                for (int n = 0; n < NT; n++) {
                    const int col = column + 8 * n + g, at = unit * UNIT + t * RUN + part * 16;
                    b[n][0] = b[n][1] = make_uint4(0, 0, 0, 0);
                    if (col < m) {
                        const uint4* from = (const uint4*)(x + (size_t)col * k + at);
                        if (at + 8 <= k) b[n][0] = from[0];
                        if (at + 16 <= k) b[n][1] = from[1];
                    }
                }
#pragma unroll
                for (int i = 0; i < 4; i++) {
#pragma unroll
                    for (int r = 0; r < ROW_TILES; r++) {
#if defined(FORMAT_F8)
                        const uint4 q = now[r][2 * part + i / 2];
                        const u32 lo = i % 2 ? q.z : q.x, hi = i % 2 ? q.w : q.y;
                        const uint4 a = make_uint4(widen(lo), widen(lo >> 16), widen(hi), widen(hi >> 16));
#else
                        const uint4 a = now[r][i];
#endif
#pragma unroll
                        for (int n = 0; n < NT; n++) {
                            const uint4 v = b[n][i / 2];
                            const uint2 y = i % 2 ? make_uint2(v.z, v.w) : make_uint2(v.x, v.y);
#if defined(FORMAT_F8)
                            multiply(sum[r][n], a, y);
#else
                            multiply(acc[r][n], a, y);
#endif
                        }
                    }
                }
            }
#if defined(FORMAT_F8)
#pragma unroll
            for (int r = 0; r < ROW_TILES; r++) {
                const int of = min(first_tile + r, row_tiles - 1);
                const float scale = scales[(size_t)of * units + unit];
#pragma unroll
                for (int n = 0; n < NT; n++) {
                    acc[r][n].x = __fmaf_rn(sum[r][n].x, scale, acc[r][n].x);
                    acc[r][n].y = __fmaf_rn(sum[r][n].y, scale, acc[r][n].y);
                    acc[r][n].z = __fmaf_rn(sum[r][n].z, scale, acc[r][n].z);
                    acc[r][n].w = __fmaf_rn(sum[r][n].w, scale, acc[r][n].w);
                }
            }
#endif
        }
    }

    // chains[w][column][row]
    constexpr int ROWS = 16 * ROW_TILES, COLUMNS = 8 * NT;
#pragma unroll
    for (int r = 0; r < ROW_TILES; r++)
#pragma unroll
        for (int n = 0; n < NT; n++) {
            float* to = chains + (w * COLUMNS + 8 * n + 2 * t) * ROWS + 16 * r + g;
            to[0] = acc[r][n].x, to[ROWS] = acc[r][n].y, to[8] = acc[r][n].z, to[ROWS + 8] = acc[r][n].w;
        }
    __syncthreads();
    for (int i = threadIdx.x; i < ROWS * COLUMNS; i += 256) {
        const int row = i % ROWS, c = column + i / ROWS, of = first_tile + row / 16;
        if (c >= m || of >= row_tiles) continue;
        const uint2 place = places[of];
        if (row % 16 >= (int)place.y) continue;
        float v[8];
#pragma unroll
        for (int j = 0; j < 8; j++) v[j] = chains[j * ROWS * COLUMNS + i];
#pragma unroll
        for (int distance = 4; distance > 0; distance /= 2)
#pragma unroll
            for (int j = 0; j < distance; j++) v[j] = __fadd_rn(v[j], v[j + distance]);
        const size_t at = (size_t)c * width + place.x + row % 16;
        out[at] = residual ? __fadd_rn(v[0], residual[at]) : v[0];
    }
}

#define ENTRY(name, NT, BLOCKS)                                                                                                \
    extern "C" __global__ void __launch_bounds__(256, BLOCKS) name(                                                            \
        const u8* weights, const float* scales, const uint2* places, const u16* x, const float* residual, float* out, int m,    \
        int k, int row_tiles, int width) {                                                                                     \
        product<NT>(weights, scales, places, x, residual, out, m, k, row_tiles, width);                                        \
    }

ENTRY(product16, 2, MIN_BLOCKS)
ENTRY(product32, 4, MIN_BLOCKS)
ENTRY(product64, 8, 1)
