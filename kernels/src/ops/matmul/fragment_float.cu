// Products of float weights in fragment order, m = 1 and up: a device class of its own, one program for every m.
//
// A unit is 64 elements of sixteen-bit weights or 128 of e4m3, which are widened to f16, exactly, and whose block scale is applied to
// the sum of the unit. A warp owns one chain, the units c, c + 8, ..., of 16 rows. Without CLUSTER the eight warps of a block own the
// eight chains of the same rows; with it a block is one chain of 128 rows, and a cluster of eight blocks has the eight chains. The
// chains meet in shared memory and are added in a pair tree. A column of the result depends on its column of the activation alone,
// so its bits do not depend on how many there are.
//
// Lane l stands for row g = l / 4 (and g + 8) and, t = l % 4, for a run of 16 or 32 elements of the unit, so that an activation
// comes in loads of sixteen bytes.
//
// FORMAT_BF16, FORMAT_F16 or FORMAT_F8, DEPTH (units in registers), CLUSTER (0 or 1) and MIN_BLOCKS are defined by the variant.
#include "cluster.cuh"
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

// Puts the activation of a chain into shared memory: x[unit][columns / 8][load][lane], sixteen bytes each; of a single column only
// what lanes 0 to 3 have, which all others read too.
template <int NT, bool ONE>
__device__ __forceinline__ void stage(uint4* to, const u16* x, int m, int k, int units, int column, int chain, int thread,
                                      int threads) {
    constexpr int LANES = ONE ? 4 : 32;
    const int own = (units - chain + 7) / 8;
    for (int i = thread; i < own * NT * X_LOADS * LANES; i += threads) {
        const int lane = i % LANES, load = i / LANES % X_LOADS, n = i / (LANES * X_LOADS) % NT;
        const int unit = i / (LANES * X_LOADS * NT) * 8 + chain;
        const int col = min(column + 8 * n + lane / 4, m - 1), at = unit * UNIT + lane % 4 * RUN + 8 * load;
        to[i] = at + 8 <= k ? *(const uint4*)(x + (size_t)col * k + at) : make_uint4(0, 0, 0, 0);
    }
}

template <int NT, bool ONE>
__device__ __forceinline__ void product(const u8* __restrict__ weights, const float* __restrict__ scales,
                                        const uint2* __restrict__ places, const u16* __restrict__ x,
                                        const float* __restrict__ residual, float* __restrict__ out, int m, int k,
                                        int row_tiles, int width) {
    extern __shared__ __align__(16) u8 memory[];
    constexpr int COLUMNS = 8 * NT, LANES = ONE ? 4 : 32;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const int units = (k + UNIT - 1) / UNIT, column = blockIdx.y * COLUMNS;
#if CLUSTER
    const int chain = cluster_rank(), lead = warp, stride = gridDim.x / 8;
    constexpr int GROUP = 8, STAGED = 1;
    int group = blockIdx.x / 8;
#else
    const int chain = warp, lead = 0, stride = gridDim.x;
    constexpr int GROUP = 1, STAGED = 8;
    int group = blockIdx.x;
#endif
    constexpr int ROWS = 16 * GROUP;
    const int groups = (row_tiles + GROUP - 1) / GROUP, own = (units - chain + 7) / 8, most = (units + 7) / 8;
    int rounds = group < groups ? (groups - 1 - group) / stride + 1 : 0;

    // Weights are asked for DEPTH units ahead, over the ends of groups.
    int next_group = group, next_unit = 0, loads = rounds * own;
    const u8* next = weights;
    const float* next_scale = scales;
    const auto aim = [&]() {
        const size_t tile = min(next_group * GROUP + lead, row_tiles - 1);
        next = weights + (tile * units + chain) * UNIT_BYTES + lane * 16;
        next_scale = scales + tile * units + chain;
    };
    uint4 ring[DEPTH][4];
    float ring_scale[DEPTH];
    const auto fetch = [&](uint4(&to)[4], float& scale) {
        if (loads <= 0) return;
        loads--;
#pragma unroll
        for (int i = 0; i < 4; i++) to[i] = load_weights(next + i * 512);
        next += 8 * UNIT_BYTES;
#if defined(FORMAT_F8)
        scale = *next_scale;
        next_scale += 8;
#endif
        if (++next_unit == own) {
            next_unit = 0;
            next_group += stride;
            aim();
        }
    };
    aim();
#pragma unroll
    for (int d = 0; d < DEPTH; d++) fetch(ring[d], ring_scale[d]);

    // The staged activation, then two buffers of chains.
    const int staged = most * NT * X_LOADS * LANES;
    uint4* const all_x = (uint4*)memory;
    uint4* const own_x = all_x + (CLUSTER ? 0 : warp * staged);
    float* const buffers = (float*)(all_x + STAGED * staged);
    stage<NT, ONE>(own_x, x, m, k, units, column, chain, CLUSTER ? threadIdx.x : lane, CLUSTER ? 256 : 32);
    if (CLUSTER) __syncthreads();
    else __syncwarp();

    float4 acc[NT] = {};
    const uint4* from = own_x + lane % LANES;
    int turn = 0, unit = 0;
    // A chain that a short row leaves empty still meets the others.
    while (rounds > 0) {
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            if (rounds <= 0) break;
            if (own > 0) {
#if defined(FORMAT_F8)
                float4 sum[NT] = {};
#endif
#pragma unroll
                for (int part = 0; part < X_LOADS / 2; part++) {
#pragma unroll
                    for (int i = 0; i < 4; i++) {
#if defined(FORMAT_F8)
                        const uint4 q = ring[d][2 * part + i / 2];
                        const u32 lo = i % 2 ? q.z : q.x, hi = i % 2 ? q.w : q.y;
                        const uint4 a = make_uint4(widen(lo), widen(lo >> 16), widen(hi), widen(hi >> 16));
#else
                        const uint4 a = ring[d][i];
#endif
#pragma unroll
                        for (int n = 0; n < NT; n++) {
                            const uint4 v = from[(n * X_LOADS + 2 * part + i / 2) * LANES];
                            const uint2 y = i % 2 ? make_uint2(v.z, v.w) : make_uint2(v.x, v.y);
#if defined(FORMAT_F8)
                            multiply(sum[n], a, y);
#else
                            multiply(acc[n], a, y);
#endif
                        }
                    }
                }
#if defined(FORMAT_F8)
#pragma unroll
                for (int n = 0; n < NT; n++) {
                    acc[n].x = __fmaf_rn(sum[n].x, ring_scale[d], acc[n].x);
                    acc[n].y = __fmaf_rn(sum[n].y, ring_scale[d], acc[n].y);
                    acc[n].z = __fmaf_rn(sum[n].z, ring_scale[d], acc[n].z);
                    acc[n].w = __fmaf_rn(sum[n].w, ring_scale[d], acc[n].w);
                }
#endif
                fetch(ring[d], ring_scale[d]);
                from += NT * X_LOADS * LANES;
                if (++unit < own) continue;
            }

        // The chains of a group: [chain][column][row], or with CLUSTER [column][row] in the block of each chain. There are two
        // buffers, so that one meeting a group is enough.
        float* const chains = buffers + (turn ? (CLUSTER ? 1 : 8) * COLUMNS * ROWS : 0);
        float* const own_chain = chains + (CLUSTER ? 16 * lead : warp * COLUMNS * ROWS) + g;
#pragma unroll
        for (int n = 0; n < NT; n++) {
            float* to = own_chain + (8 * n + 2 * t) * ROWS;
            to[0] = acc[n].x, to[ROWS] = acc[n].y, to[8] = acc[n].z, to[ROWS + 8] = acc[n].w;
            acc[n] = make_float4(0, 0, 0, 0);
        }
#if CLUSTER
        cluster_wait();
        const int begin = chain * 256 + threadIdx.x, step = 8 * 256;
#else
        __syncthreads();
        const int begin = threadIdx.x, step = 256;
#endif
        for (int i = begin; i < ROWS * COLUMNS; i += step) {
            const int row = i % ROWS, c = column + i / ROWS, of = group * GROUP + row / 16;
            if (c >= m || of >= row_tiles) continue;
            const uint2 place = places[of];
            if (row % 16 >= (int)place.y) continue;
            float v[8];
#pragma unroll
            for (int j = 0; j < 8; j++) {
#if CLUSTER
                v[j] = of_rank(chains + i, j);
#else
                v[j] = chains[j * ROWS * COLUMNS + i];
#endif
            }
#pragma unroll
            for (int distance = 4; distance > 0; distance /= 2)
#pragma unroll
                for (int j = 0; j < distance; j++) v[j] = __fadd_rn(v[j], v[j + distance]);
            const size_t at = (size_t)c * width + place.x + row % 16;
            out[at] = residual ? __fadd_rn(v[0], residual[at]) : v[0];
        }
        turn ^= 1;
        group += stride;
        unit = 0;
        from = own_x + lane % LANES;
        rounds--;
        }
    }
#if CLUSTER
    // What others still read must not go.
    cluster_wait();
#endif
}

#if CLUSTER
#define SHAPE __cluster_dims__(8, 1, 1)
#else
#define SHAPE
#endif
#define ENTRY(name, NT, ONE, BLOCKS)                                                                                                \
    extern "C" __global__ void SHAPE __launch_bounds__(256, BLOCKS) name(                                                      \
        const u8* weights, const float* scales, const uint2* places, const u16* x, const float* residual, float* out, int m,    \
        int k, int row_tiles, int width) {                                                                                     \
        product<NT, ONE>(weights, scales, places, x, residual, out, m, k, row_tiles, width);                                        \
    }

ENTRY(product1, 1, true, MIN_BLOCKS)
ENTRY(product8, 1, false, MIN_BLOCKS)
#if CLUSTER
ENTRY(product16, 2, false, MIN_BLOCKS)
ENTRY(product32, 4, false, 2)
ENTRY(product64, 8, false, 1)
#endif
