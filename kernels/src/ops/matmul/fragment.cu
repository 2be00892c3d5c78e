// Products of quantised weights in fragment order, m = 1 and up, in the eight chains of the integer order classes.
//
// A block of 16 rows x 32 is one tensor-core operand, exact in integers, and every output folds it into its chain as the class
// says. A warp owns one chain of 16 * ROW_TILES rows. Without CLUSTER the eight warps of a block own the eight chains of the same
// rows; with it a block is one chain of 8 * 16 * ROW_TILES rows, and a cluster of eight blocks has the eight chains, so that a block
// stages only its own eighth of the activation. The chains meet in shared memory and are added in a pair tree.
//
// Lane l of a warp stands for row g = l / 4 (and g + 8) and elements 8 t .. 8 t + 7 of a block, t = l % 4: which elements a lane
// holds is free inside an exact sum. Where the halves of a block have scales of their own they are 4 t .. 4 t + 3 of each half.
//
// Four blocks of a chain are a unit. A row tile lies in memory as SHARED_BYTES a unit that all chains read, then for each chain its
// units of UNIT_BYTES.
//
// FORMAT_*, ROW_TILES, DEPTH (units in registers), CLUSTER (0 or 1) and MIN_BLOCKS are defined by the variant.
#include "cluster.cuh"
#include "fragment.cuh"

// acc: (row g, column 2 t), (g, 2 t + 1), (g + 8, 2 t), (g + 8, 2 t + 1).
template <bool ONE>
__device__ __forceinline__ void fold(float (&acc)[4], const uint4& a, const Columns& c, const Scales& s, int lane) {
#if KIND == SCALED || KIND == MINIMUM
    const int4 d = mma_s8(a, c.x, c.first);
    acc[0] = __fmaf_rn(as_number(d.x), s.a * c.x0, acc[0]);
    acc[2] = __fmaf_rn(as_number(d.z), s.b * c.x0, acc[2]);
    if (!ONE) {
        acc[1] = __fmaf_rn(as_number(d.y), s.a * c.x1, acc[1]);
        acc[3] = __fmaf_rn(as_number(d.w), s.b * c.x1, acc[3]);
    }
#if KIND == MINIMUM
    acc[0] = __fmaf_rn(s.c, c.t0, acc[0]);
    acc[2] = __fmaf_rn(s.d, c.t0, acc[2]);
    if (!ONE) {
        acc[1] = __fmaf_rn(s.c, c.t1, acc[1]);
        acc[3] = __fmaf_rn(s.d, c.t1, acc[3]);
    }
#endif
#elif KIND == SUB16
    const int4 p = mma_s8_half(a.x, a.y, c.x.x, c.first), q = mma_s8_half(a.z, a.w, c.x.y, c.second);
    const int a0 = (i8)s.sub, a1 = (i8)(s.sub >> 8), b0 = (i8)(s.sub >> 16), b1 = (i8)(s.sub >> 24);
    acc[0] = __fmaf_rn((float)(a0 * p.x + a1 * q.x), s.a * c.x0, acc[0]);
    acc[2] = __fmaf_rn((float)(b0 * p.z + b1 * q.z), s.b * c.x0, acc[2]);
    if (!ONE) {
        acc[1] = __fmaf_rn((float)(a0 * p.y + a1 * q.y), s.a * c.x1, acc[1]);
        acc[3] = __fmaf_rn((float)(b0 * p.w + b1 * q.w), s.b * c.x1, acc[3]);
    }
#else
    const int4 p = mma_s8_half(a.x, a.y, c.x.x, c.first), q = mma_s8_half(a.z, a.w, c.x.y, c.first);
    acc[0] = __fmaf_rn(__fmaf_rn(as_number(q.x), s.c, as_number(p.x) * s.a), c.x0, acc[0]);
    acc[2] = __fmaf_rn(__fmaf_rn(as_number(q.z), s.d, as_number(p.z) * s.b), c.x0, acc[2]);
    if (!ONE) {
        acc[1] = __fmaf_rn(__fmaf_rn(as_number(q.y), s.c, as_number(p.y) * s.a), c.x1, acc[1]);
        acc[3] = __fmaf_rn(__fmaf_rn(as_number(q.w), s.d, as_number(p.w) * s.b), c.x1, acc[3]);
    }
#endif
}

// A scale that lane 4 g + i keeps.
__device__ __forceinline__ Scales of_tile(const Scales& s, int lane, int i) {
    const int from = (lane & ~3) | i;
    Scales r;
    r.a = __shfl_sync(0xffffffffu, s.a, from);
    r.b = __shfl_sync(0xffffffffu, s.b, from);
#if KIND == MINIMUM || KIND == MICRO16
    r.c = __shfl_sync(0xffffffffu, s.c, from);
    r.d = __shfl_sync(0xffffffffu, s.d, from);
#elif KIND == SUB16
    r.sub = __shfl_sync(0xffffffffu, s.sub, from);
#endif
    return r;
}

template <int NT, bool ONE>
__device__ __forceinline__ void product(const u8* __restrict__ weights, const uint2* __restrict__ places,
                                        const i8* __restrict__ quants, const float* __restrict__ x_scales,
                                        const float* __restrict__ residual, const float* __restrict__ outer,
                                        float* __restrict__ out, int m, int blocks, int row_tiles, int width) {
    extern __shared__ __align__(16) u8 memory[];
    constexpr int COLUMNS = ONE ? 1 : 8 * NT;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const int units = (blocks + 31) / 32, tiles = 4 * units, column = blockIdx.y * (8 * NT);
    const u32 tile_bytes = units * (SHARED_BYTES + 8 * UNIT_BYTES);
    // A group is what a block, or a cluster, has in hand at a time.
#if CLUSTER
    const int chain = cluster_rank(), lead = warp * ROW_TILES, stride = gridDim.x / 8;
    constexpr int GROUP = 8 * ROW_TILES, STAGED = 1;
    int group = blockIdx.x / 8;
#else
    const int chain = warp, lead = 0, stride = gridDim.x;
    constexpr int GROUP = ROW_TILES, STAGED = 8;
    int group = blockIdx.x;
#endif
    constexpr int ROWS = 16 * GROUP;
    const int groups = (row_tiles + GROUP - 1) / GROUP;
    int left = group < groups ? (groups - 1 - group) / stride * units + units : 0;

    const Table codes = table();

    // Weights are asked for DEPTH units ahead, over the ends of groups.
    int next_group = group, next_unit = 0, loads = left;
    Place next[ROW_TILES];
    const auto aim = [&]() {
#pragma unroll
        for (int r = 0; r < ROW_TILES; r++) {
            const u32 tile = min(next_group * GROUP + lead + r, row_tiles - 1);
            next[r].weights = weights;
            next[r].shared = tile * tile_bytes;
            next[r].unit = next[r].shared + units * SHARED_BYTES + chain * units * UNIT_BYTES;
        }
    };
    Quants ring[DEPTH][ROW_TILES];
    Words words[DEPTH][ROW_TILES];
    const auto fetch = [&](Quants(&to)[ROW_TILES], Words(&scale)[ROW_TILES]) {
        if (loads <= 0) return;
        loads--;
#pragma unroll
        for (int r = 0; r < ROW_TILES; r++) {
            load(to[r], next[r], lane);
            load(scale[r], next[r], lane);
            next[r].unit += UNIT_BYTES;
            next[r].shared += SHARED_BYTES;
        }
        if (++next_unit == units) {
            next_unit = 0;
            next_group += stride;
            aim();
        }
    };
    aim();
#pragma unroll
    for (int d = 0; d < DEPTH; d++) fetch(ring[d], words[d]);

    // bytes[chain][tile][column of eight][lane], entries[chain][tile][column], then two buffers of chains
    const int staged_bytes = tiles * COLUMNS * 32, staged_entries = tiles * COLUMNS * ENTRY_WORDS;
    float* const all_entries = (float*)(memory + STAGED * staged_bytes);
    u8* const own_bytes = memory + (CLUSTER ? 0 : warp * staged_bytes);
    float* const own_entries = all_entries + (CLUSTER ? 0 : warp * staged_entries);
    float* const buffers = all_entries + STAGED * staged_entries;
    stage<NT, ONE>(own_bytes, own_entries, quants, x_scales, m, blocks, tiles, column, chain, CLUSTER ? threadIdx.x : lane,
                   CLUSTER ? 256 : 32);
    if (CLUSTER) __syncthreads();
    else __syncwarp();

    float acc[ROW_TILES][NT][4] = {};
    const u8* bytes = own_bytes;
    const float* entries = own_entries;
    int unit = 0, turn = 0;
    while (left > 0) {
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            if (left <= 0) break;
            left--;
            Scales kept[ROW_TILES];
#pragma unroll
            for (int r = 0; r < ROW_TILES; r++) kept[r] = scales(words[d][r]);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                Columns c[NT];
#pragma unroll
                for (int n = 0; n < NT; n++)
                    c[n] = columns<ONE>(bytes + (i * COLUMNS + 8 * n) * 32, entries + (i * COLUMNS + 8 * n) * ENTRY_WORDS, lane);
#pragma unroll
                for (int r = 0; r < ROW_TILES; r++) {
                    const uint4 a = tile(ring[d][r], i, codes);
                    const Scales s = of_tile(kept[r], lane, i);
#pragma unroll
                    for (int n = 0; n < NT; n++) fold<ONE>(acc[r][n], a, c[n], s, lane);
                }
            }
            fetch(ring[d], words[d]);
            bytes += 4 * COLUMNS * 32;
            entries += 4 * COLUMNS * ENTRY_WORDS;
            if (++unit < units) continue;

            // The chains of a group: [chain][column][row], or with CLUSTER [column][row] in the block of each chain. There are two
            // buffers, so that one meeting a group is enough.
            float* const chains = buffers + (turn ? (CLUSTER ? 1 : 8) * COLUMNS * ROWS : 0);
            float* const own = chains + (CLUSTER ? 16 * lead : warp * COLUMNS * ROWS);
#pragma unroll
            for (int r = 0; r < ROW_TILES; r++)
#pragma unroll
                for (int n = 0; n < NT; n++)
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        const int c = ONE ? 0 : 8 * n + 2 * t + e % 2;
                        if (!ONE || (t == 0 && e % 2 == 0)) own[c * ROWS + 16 * r + g + 8 * (e / 2)] = acc[r][n][e];
                        acc[r][n][e] = 0.0f;
                    }
#if CLUSTER
            cluster_wait();
            const int begin = chain * 256 + threadIdx.x, step = 8 * 256;
#else
            __syncthreads();
            // Another warp begins each time.
            const int begin = (threadIdx.x + 32 * unit * turn) % 256, step = 256;
#endif
            for (int i = begin; i < ROWS * COLUMNS; i += step) {
                const int row = i % ROWS, c = column + i / ROWS, of = group * GROUP + row / 16;
                if (c >= m || of >= row_tiles) continue;
                const uint2 place = places[of];
                if (row % 16 >= (int)place.y) continue;
                float v[8];
#pragma unroll
                for (int k = 0; k < 8; k++) {
#if CLUSTER
                    v[k] = of_rank(chains + i, k);
#else
                    v[k] = chains[k * ROWS * COLUMNS + i];
#endif
                }
#pragma unroll
                for (int distance = 4; distance > 0; distance /= 2)
#pragma unroll
                    for (int k = 0; k < distance; k++) v[k] = __fadd_rn(v[k], v[k + distance]);
                float sum = v[0];
#if KIND == MICRO16
                sum = sum * outer[of];
#endif
                const size_t at = (size_t)c * width + place.x + row % 16;
                if (residual) sum = __fadd_rn(sum, residual[at]);
                out[at] = sum;
            }
            unit = 0;
            turn ^= 1;
            group += stride;
            bytes = own_bytes;
            entries = own_entries;
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
#define ENTRY(name, NT, ONE, BLOCKS)                                                                                           \
    extern "C" __global__ void SHAPE __launch_bounds__(256, BLOCKS) name(                                                      \
        const u8* weights, const uint2* places, const i8* quants, const float* x_scales, const float* residual,                \
        const float* outer, float* out, int m, int blocks, int row_tiles, int width) {                                         \
        product<NT, ONE>(weights, places, quants, x_scales, residual, outer, out, m, blocks, row_tiles, width);                \
    }

ENTRY(product1, 1, true, MIN_BLOCKS)
ENTRY(product8, 1, false, MIN_BLOCKS)
#if CLUSTER
ENTRY(product16, 2, false, MIN_BLOCKS)
ENTRY(product32, 4, false, MIN_BLOCKS)
ENTRY(product64, 8, false, 1)
#endif
