// Products of quantised weights in fragment order for one row of the activation, in the eight chains of the integer order classes.
//
// A tensor-core tile has eight columns and there is one: here they stand for row tiles. A warp has TILES row tiles (2 or 4) of one
// chain; for row tile r the operand of the activation is zero but for the columns 2 (4 / TILES) r and the next even ones, and the
// products of all row tiles go to one accumulator. Lane 4 g + t then holds the sums of rows g and g + 8 of row tile t TILES / 4, so
// that every lane folds, with scales that it reads for itself.
//
// The eight warps of a block are the eight chains of the same rows. FORMAT_*, TILES, DEPTH (units in registers) and MIN_BLOCKS are
// defined by the variant.
#include "fragment.cuh"

extern "C" __global__ void __launch_bounds__(256, MIN_BLOCKS)
    product1(const u8* __restrict__ weights, const uint2* __restrict__ places, const i8* __restrict__ quants,
             const float* __restrict__ x_scales, const float* __restrict__ residual, const float* __restrict__ outer,
             float* __restrict__ out, int m, int blocks, int row_tiles, int width) {
    extern __shared__ __align__(16) u8 memory[];
    constexpr int ROWS = 16 * TILES;
    const int lane = threadIdx.x % 32, chain = threadIdx.x / 32, g = lane / 4, t = lane % 4, own_tile = t * TILES / 4;
    const int units = (blocks + 31) / 32, tiles = 4 * units, stride = gridDim.x;
    const u32 tile_bytes = units * (SHARED_BYTES + 8 * UNIT_BYTES);
    const int groups = (row_tiles + TILES - 1) / TILES;
    int group = blockIdx.x;
    int left = group < groups ? (groups - 1 - group) / stride * units + units : 0;

    const Table codes = table();

    // Weights are asked for DEPTH units ahead, over the ends of groups.
    int next_group = group, next_unit = 0, loads = left;
    Place next[TILES], next_run;
    const auto aim = [&]() {
#pragma unroll
        for (int r = 0; r < TILES; r++) {
            const u32 tile = min(next_group * TILES + r, row_tiles - 1);
            next[r].weights = weights;
            next[r].shared = tile * tile_bytes;
            next[r].unit = next[r].shared + units * SHARED_BYTES + chain * units * UNIT_BYTES;
        }
        const u32 tile = min(next_group * TILES + own_tile, row_tiles - 1);
        next_run.weights = weights;
        next_run.shared = tile * tile_bytes;
        next_run.unit = next_run.shared + units * SHARED_BYTES + chain * units * UNIT_BYTES;
    };
    Quants ring[DEPTH][TILES];
    Run runs[DEPTH];
    const auto fetch = [&](Quants(&to)[TILES], Run& run) {
        if (loads <= 0) return;
        loads--;
#pragma unroll
        for (int r = 0; r < TILES; r++) {
            load(to[r], next[r], lane);
            next[r].unit += UNIT_BYTES;
        }
        load(run, next_run, g);
        next_run.unit += UNIT_BYTES;
        next_run.shared += SHARED_BYTES;
        if (++next_unit == units) {
            next_unit = 0;
            next_group += stride;
            aim();
        }
    };
    aim();
#pragma unroll
    for (int d = 0; d < DEPTH; d++) fetch(ring[d], runs[d]);

    // bytes[chain][tile], as many zeros as a chain has bytes, entries[chain][tile], two buffers of [chain][row]
    const int staged = tiles * 32;
    u8* const own_bytes = memory + chain * staged;
    u8* const zeros = memory + 8 * staged;
    float* const all_entries = (float*)(memory + 9 * staged);
    float* const own_entries = all_entries + chain * tiles * ENTRY_WORDS;
    float* const buffers = all_entries + 8 * tiles * ENTRY_WORDS;
    for (int i = threadIdx.x; i < staged / 16; i += 256) ((uint4*)zeros)[i] = make_uint4(0, 0, 0, 0);
    stage<1, true>(own_bytes, own_entries, quants, x_scales, 1, blocks, tiles, 0, chain, lane, 32);
    __syncthreads();

    int base[TILES];
#pragma unroll
    for (int r = 0; r < TILES; r++)
        base[r] = (int)((g % 2 == 0 && g / 2 * TILES / 4 == r ? own_bytes : zeros) - memory) + 8 * t;
    int step = 0;  // of the unit in bytes and entries
    const float* entries = own_entries;
    float acc[2] = {};
    int unit = 0, turn = 0;
    while (left > 0) {
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            if (left <= 0) break;
            left--;
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const Columns c = columns<true>(memory, entries + i * ENTRY_WORDS, 0);
                const Scales s = scales(runs[d].block[i]);
#if KIND == SCALED || KIND == MINIMUM
                int4 sum = c.first;
#pragma unroll
                for (int r = 0; r < TILES; r++)
                    sum = mma_s8(tile(ring[d][r], i, codes), *(const uint2*)(memory + base[r] + step + 32 * i), sum);
                acc[0] = __fmaf_rn(as_number(sum.x), s.a * c.x0, acc[0]);
                acc[1] = __fmaf_rn(as_number(sum.z), s.b * c.x0, acc[1]);
#if KIND == MINIMUM
                acc[0] = __fmaf_rn(s.c, c.t0, acc[0]);
                acc[1] = __fmaf_rn(s.d, c.t0, acc[1]);
#endif
#else
                int4 p = c.first;
#if KIND == SUB16
                int4 q = c.second;
#else
                int4 q = c.first;
#endif
#pragma unroll
                for (int r = 0; r < TILES; r++) {
                    const uint4 a = tile(ring[d][r], i, codes);
                    const uint2 x = *(const uint2*)(memory + base[r] + step + 32 * i);
                    p = mma_s8_half(a.x, a.y, x.x, p);
                    q = mma_s8_half(a.z, a.w, x.y, q);
                }
#if KIND == SUB16
                const int a0 = (i8)s.sub, a1 = (i8)(s.sub >> 8), b0 = (i8)(s.sub >> 16), b1 = (i8)(s.sub >> 24);
                acc[0] = __fmaf_rn((float)(a0 * p.x + a1 * q.x), s.a * c.x0, acc[0]);
                acc[1] = __fmaf_rn((float)(b0 * p.z + b1 * q.z), s.b * c.x0, acc[1]);
#else
                acc[0] = __fmaf_rn(__fmaf_rn(as_number(q.x), s.c, as_number(p.x) * s.a), c.x0, acc[0]);
                acc[1] = __fmaf_rn(__fmaf_rn(as_number(q.z), s.d, as_number(p.z) * s.b), c.x0, acc[1]);
#endif
#endif
            }
            fetch(ring[d], runs[d]);
            step += 128;
            entries += 4 * ENTRY_WORDS;
            if (++unit < units) continue;

            float* const chains = buffers + (turn ? 8 * ROWS : 0);
            if (TILES == 4 || t % 2 == 0) {
                chains[chain * ROWS + 16 * own_tile + g] = acc[0];
                chains[chain * ROWS + 16 * own_tile + g + 8] = acc[1];
            }
            acc[0] = acc[1] = 0.0f;
            __syncthreads();
            const int row = threadIdx.x, of = group * TILES + row / 16;
            if (row < ROWS && of < row_tiles) {
                const uint2 place = places[of];
                if (row % 16 < (int)place.y) {
                    float v[8];
#pragma unroll
                    for (int k = 0; k < 8; k++) v[k] = chains[k * ROWS + row];
#pragma unroll
                    for (int distance = 4; distance > 0; distance /= 2)
#pragma unroll
                        for (int k = 0; k < distance; k++) v[k] = __fadd_rn(v[k], v[k + distance]);
                    float sum = v[0];
#if KIND == MICRO16
                    sum = sum * outer[of];
#endif
                    const int at = place.x + row % 16;
                    if (residual) sum = __fadd_rn(sum, residual[at]);
                    out[at] = sum;
                }
            }
            unit = 0;
            turn ^= 1;
            group += stride;
            step = 0;
            entries = own_entries;
        }
    }
}
