// Products of quantised weights in fragment order, m = 1 and up, in the eight chains of the integer order classes.
//
// A block of eight warps has 16 * ROW_TILES rows of the weight. Warp w owns chain w: the blocks of 32 with index w, w + 8, ...
// A block of 16 rows x 32 is one tensor-core operand, exact in integers, and every output folds it into its chain as the class
// says. The eight chains meet in shared memory and are added in a pair tree.
//
// Lane l of a warp stands for row g = l / 4 (and g + 8) and elements 8 t .. 8 t + 7 of a block, t = l % 4: which elements a lane
// holds is free inside an exact sum, and this way an activation is one load of eight bytes.
//
// Four blocks of a chain are a unit. A row tile lies in memory as SHARED_BYTES a unit that all chains read, then for each chain its
// units of UNIT_BYTES.
//
// FORMAT_*, ROW_TILES and DEPTH (units in flight) are defined by the variant.
#include "memra.cuh"
#include <cuda_fp16.h>

#define SCALED 0
#define MINIMUM 1
#define SUB16 2
#define MICRO16 3

#if defined(FORMAT_Q8_0)
#define QUANT_LOADS 4
#define SCALE_WORDS 1
#define UNIT_BYTES 2176
#define SHARED_BYTES 0
#else
#define QUANT_LOADS 2
#if defined(FORMAT_Q4_0) || defined(FORMAT_NVFP4)
#define SCALE_WORDS 1
#define UNIT_BYTES 1152
#define SHARED_BYTES 0
#elif defined(FORMAT_Q4_1)
#define SCALE_WORDS 2
#define UNIT_BYTES 1280
#define SHARED_BYTES 0
#elif defined(FORMAT_Q5_0)
#define SCALE_WORDS 1
#define UNIT_BYTES 1408
#define SHARED_BYTES 0
#define HIGH_BIT
#define HIGH_WORDS 2
#elif defined(FORMAT_Q5_1)
#define SCALE_WORDS 2
#define UNIT_BYTES 1536
#define SHARED_BYTES 0
#define HIGH_BIT
#define HIGH_WORDS 2
#elif defined(FORMAT_Q4_K)
#define SCALE_WORDS 3
#define UNIT_BYTES 1120
#define SHARED_BYTES 256
#elif defined(FORMAT_Q5_K)
#define SCALE_WORDS 3
#define UNIT_BYTES 1376
#define SHARED_BYTES 256
#define HIGH_BIT
#define HIGH_WORDS 2
#elif defined(FORMAT_Q6_K)
#define SCALE_WORDS 2
#define UNIT_BYTES 1664
#define SHARED_BYTES 128
#define HIGH_WORDS 4
#elif defined(FORMAT_IQ4_XS)
#define SCALE_WORDS 2
#define UNIT_BYTES 1072
#define SHARED_BYTES 128
#endif
#endif

// A unit as it was read.
struct Raw {
    uint4 quants[QUANT_LOADS];
#ifdef HIGH_WORDS
    u32 high[HIGH_WORDS];
#endif
    u32 scale[SCALE_WORDS];
};

// Scales of the block that a lane keeps: block t of the unit, rows g and g + 8.
struct Scales {
    float a, b;  // SCALED, MINIMUM: scale of row g, of row g + 8; MICRO16: first half
    float c, d;  // MINIMUM: minimum of row g, of row g + 8; MICRO16: second half
    u32 sub;     // SUB16: four signed bytes: row g first and second half, row g + 8 first and second half
};

__device__ __forceinline__ float half_at(u32 word, int i) {
    return __half2float(__ushort_as_half((unsigned short)(word >> (16 * i))));
}

__device__ __forceinline__ u32 low_nibbles(u32 w) { return w & 0x0F0F0F0Fu; }
__device__ __forceinline__ u32 high_nibbles(u32 w) { return (w >> 4) & 0x0F0F0F0Fu; }

#if defined(FORMAT_Q8_0)
#define KIND SCALED
#define OFFSET 0
__device__ __forceinline__ void load(Raw& r, const u8* unit, const u8*, int lane) {
#pragma unroll
    for (int i = 0; i < 4; i++) r.quants[i] = load_weights(unit + i * 512 + lane * 16);
    r.scale[0] = load_weights4(unit + 2048 + lane * 4);
}
__device__ __forceinline__ Scales scales(const Raw& r) { return {half_at(r.scale[0], 0), half_at(r.scale[0], 1), 0, 0, 0}; }
__device__ __forceinline__ uint4 tile(const Raw& r, int i) { return r.quants[i]; }

#else
// Two blocks of nibbles are a load of sixteen bytes a lane; a word has the elements of row g in its low and of row g + 8 in its
// high nibbles.
__device__ __forceinline__ uint4 nibbles(const Raw& r, int i) {
    const uint4 q = r.quants[i / 2];
    const u32 first = i % 2 ? q.z : q.x, second = i % 2 ? q.w : q.y;
    return make_uint4(low_nibbles(first), high_nibbles(first), low_nibbles(second), high_nibbles(second));
}
__device__ __forceinline__ void load_nibbles(Raw& r, const u8* unit, int lane) {
    r.quants[0] = load_weights(unit + lane * 16);
    r.quants[1] = load_weights(unit + 512 + lane * 16);
}
#if defined(HIGH_BIT)
// Bit j of a byte of the words of high bits belongs to register j of two blocks; a lane has two such words.
__device__ __forceinline__ uint4 with_high_bit(const Raw& r, int i, uint4 q) {
    const u32 h = r.high[i / 2] >> (4 * (i % 2));
    return make_uint4(q.x | ((h << 4) & 0x10101010u), q.y | ((h << 3) & 0x10101010u), q.z | ((h << 2) & 0x10101010u),
                      q.w | ((h << 1) & 0x10101010u));
}
#endif
// The codebook entries of four indices, given as the nibbles of sixteen bits; the table as sixteen signed bytes.
__device__ __forceinline__ u32 lookup4(u32 indices, u32 t0, u32 t1, u32 t2, u32 t3) {
    const u32 low = __byte_perm(t0, t1, indices & 0x7777u), high = __byte_perm(t2, t3, indices & 0x7777u);
    return __byte_perm(low, high, 0x3210u | ((indices & 0x8888u) >> 1));
}
// Four words of signed bytes from two words of indices, each with four elements in its low and four in its high half.
__device__ __forceinline__ uint4 codebook(const Raw& r, int i, u32 t0, u32 t1, u32 t2, u32 t3) {
    const uint4 q = r.quants[i / 2];
    const u32 first = i % 2 ? q.z : q.x, second = i % 2 ? q.w : q.y;
    return make_uint4(lookup4(first & 0xFFFFu, t0, t1, t2, t3), lookup4(first >> 16, t0, t1, t2, t3),
                      lookup4(second & 0xFFFFu, t0, t1, t2, t3), lookup4(second >> 16, t0, t1, t2, t3));
}

#if defined(FORMAT_Q4_0)
#define KIND SCALED
#define OFFSET 8
__device__ __forceinline__ void load(Raw& r, const u8* unit, const u8*, int lane) {
    load_nibbles(r, unit, lane);
    r.scale[0] = load_weights4(unit + 1024 + lane * 4);
}
__device__ __forceinline__ Scales scales(const Raw& r) { return {half_at(r.scale[0], 0), half_at(r.scale[0], 1), 0, 0, 0}; }
__device__ __forceinline__ uint4 tile(const Raw& r, int i) { return nibbles(r, i); }

#elif defined(FORMAT_Q5_0)
#define KIND SCALED
#define OFFSET 16
__device__ __forceinline__ void load(Raw& r, const u8* unit, const u8*, int lane) {
    load_nibbles(r, unit, lane);
    const uint2 h = load_weights8(unit + 1024 + lane * 8);
    r.high[0] = h.x, r.high[1] = h.y;
    r.scale[0] = load_weights4(unit + 1280 + lane * 4);
}
__device__ __forceinline__ Scales scales(const Raw& r) { return {half_at(r.scale[0], 0), half_at(r.scale[0], 1), 0, 0, 0}; }
__device__ __forceinline__ uint4 tile(const Raw& r, int i) { return with_high_bit(r, i, nibbles(r, i)); }

#elif defined(FORMAT_Q4_1) || defined(FORMAT_Q5_1)
#define KIND MINIMUM
__device__ __forceinline__ void load(Raw& r, const u8* unit, const u8*, int lane) {
    load_nibbles(r, unit, lane);
    unit += 1024;
#if defined(HIGH_BIT)
    const uint2 h = load_weights8(unit + lane * 8);
    r.high[0] = h.x, r.high[1] = h.y;
    unit += 256;
#endif
    const uint2 s = load_weights8(unit + lane * 8);
    r.scale[0] = s.x, r.scale[1] = s.y;
}
__device__ __forceinline__ Scales scales(const Raw& r) {
    return {half_at(r.scale[0], 0), half_at(r.scale[0], 1), half_at(r.scale[1], 0), half_at(r.scale[1], 1), 0};
}
__device__ __forceinline__ uint4 tile(const Raw& r, int i) {
#if defined(HIGH_BIT)
    return with_high_bit(r, i, nibbles(r, i));
#else
    return nibbles(r, i);
#endif
}

#elif defined(FORMAT_Q4_K) || defined(FORMAT_Q5_K)
#define KIND MINIMUM
// Six bits each, from the lowest: scale and minimum of row g, scale and minimum of row g + 8; three bytes a lane.
__device__ __forceinline__ void load(Raw& r, const u8* unit, const u8* shared, int lane) {
    load_nibbles(r, unit, lane);
    unit += 1024;
#if defined(HIGH_BIT)
    const uint2 h = load_weights8(unit + lane * 8);
    r.high[0] = h.x, r.high[1] = h.y;
    unit += 256;
#endif
    const int byte = 3 * (lane % 4), word = byte / 4;
    const u32* packed = (const u32*)(unit + 12 * (lane / 4));
    r.scale[0] = __funnelshift_r(load_weights4(packed + word), load_weights4(packed + min(word + 1, 2)), 8 * (byte % 4));
    const uint2 d = *(const uint2*)(shared + lane * 8);
    r.scale[1] = d.x, r.scale[2] = d.y;
}
__device__ __forceinline__ Scales scales(const Raw& r) {
    const u32 p = r.scale[0];
    const float d0 = half_at(r.scale[1], 0), m0 = half_at(r.scale[1], 1), d1 = half_at(r.scale[2], 0), m1 = half_at(r.scale[2], 1);
    return {d0 * (float)(p & 63), d1 * (float)(p >> 12 & 63), -(m0 * (float)(p >> 6 & 63)), -(m1 * (float)(p >> 18 & 63)), 0};
}
__device__ __forceinline__ uint4 tile(const Raw& r, int i) {
#if defined(HIGH_BIT)
    return with_high_bit(r, i, nibbles(r, i));
#else
    return nibbles(r, i);
#endif
}

#elif defined(FORMAT_Q6_K)
#define KIND SUB16
#define OFFSET 32
__device__ __forceinline__ void load(Raw& r, const u8* unit, const u8* shared, int lane) {
    load_nibbles(r, unit, lane);
    const uint4 h = load_weights(unit + 1024 + lane * 16);
    r.high[0] = h.x, r.high[1] = h.y, r.high[2] = h.z, r.high[3] = h.w;
    r.scale[0] = load_weights4(unit + 1536 + lane * 4);
    r.scale[1] = *(const u32*)(shared + lane * 4);
}
__device__ __forceinline__ Scales scales(const Raw& r) {
    return {half_at(r.scale[1], 0), half_at(r.scale[1], 1), 0, 0, r.scale[0]};
}
// Bits 2 j and 2 j + 1 of a byte of the word of high bits belong to register j.
__device__ __forceinline__ uint4 tile(const Raw& r, int i) {
    const uint4 q = nibbles(r, i);
    const u32 h = r.high[i];
    return make_uint4(q.x | ((h << 4) & 0x30303030u), q.y | ((h << 2) & 0x30303030u), q.z | (h & 0x30303030u),
                      q.w | ((h >> 2) & 0x30303030u));
}

#elif defined(FORMAT_IQ4_XS)
#define KIND SCALED
#define OFFSET 0
// A scale of six bits a row, two rows a lane: the low nibbles of both in a byte, the upper pairs of bits of both in a nibble.
__device__ __forceinline__ void load(Raw& r, const u8* unit, const u8* shared, int lane) {
    load_nibbles(r, unit, lane);
    const u32 high = ((const u16*)(unit + 1056))[lane / 4];
    r.scale[0] = unit[1024 + lane] | (high >> (4 * (lane % 4)) & 15) << 8;
    r.scale[1] = *(const u32*)(shared + lane * 4);
}
__device__ __forceinline__ Scales scales(const Raw& r) {
    const u32 p = r.scale[0];
    const int s0 = (int)((p & 15) | (p >> 8 & 3) << 4) - 32, s1 = (int)((p >> 4 & 15) | (p >> 10 & 3) << 4) - 32;
    return {half_at(r.scale[1], 0) * (float)s0, half_at(r.scale[1], 1) * (float)s1, 0, 0, 0};
}
__device__ __forceinline__ uint4 tile(const Raw& r, int i) {
    return codebook(r, i, 0xBFAD9881u, 0xF6EADDCFu, 0x26190D01u, 0x71594535u);
}

#elif defined(FORMAT_NVFP4)
#define KIND MICRO16
__device__ __forceinline__ void load(Raw& r, const u8* unit, const u8*, int lane) {
    load_nibbles(r, unit, lane);
    r.scale[0] = load_weights4(unit + 1024 + lane * 4);
}
// An unsigned e4m3 as half, exact: exponent and mantissa go to their places and the bias is made up by a multiplication.
__device__ __forceinline__ float e4m3_half(u32 byte) {
    const u32 bits = (byte & 0x7Fu) << 7;
    return __half2float(__ushort_as_half((unsigned short)bits)) * 128.0f;
}
__device__ __forceinline__ Scales scales(const Raw& r) {
    const u32 p = r.scale[0];
    return {e4m3_half(p), e4m3_half(p >> 16), e4m3_half(p >> 8), e4m3_half(p >> 24), 0};
}
// Twice the value of an e2m1: 0 1 2 3 4 6 8 12, then the negative ones.
__device__ __forceinline__ uint4 tile(const Raw& r, int i) {
    return codebook(r, i, 0x03020100u, 0x0C080604u, 0xFDFEFF00u, 0xF4F8FAFCu);
}
#endif
#endif

// One block of 32 of one row tile and eight columns, folded into the chains of its outputs.
struct Columns {
    uint2 x;        // eight bytes of the column of this lane's g
    float x0, x1;   // scales of columns 2 t and 2 t + 1
    int4 first;     // what an exact sum starts with
    int4 second;    // SUB16: for the second half
    float t0, t1;   // MINIMUM: scaled sums of columns 2 t and 2 t + 1
};

__device__ __forceinline__ float as_number(int bits) { return __fsub_rn(__int_as_float(bits), EXACT_INT); }

__device__ __forceinline__ uint2 half_of(const uint2& x, int lane, int half) {
    return (lane % 4 < 2) == (half == 0) ? x : make_uint2(0, 0);
}

__device__ __forceinline__ void begin(Columns& c, int lane) {
    const int4 exact = make_int4(EXACT_INT_BITS, EXACT_INT_BITS, EXACT_INT_BITS, EXACT_INT_BITS);
    c.first = exact;
#if KIND == SCALED && OFFSET > 0
    const u32 minus = 0x01010101u * (u32)(u8)(-OFFSET);
    c.first = mma_s8(make_uint4(minus, minus, minus, minus), c.x, exact);
#elif KIND == SUB16
    const u32 minus = 0x01010101u * (u32)(u8)(-OFFSET);
    const uint4 m = make_uint4(minus, minus, minus, minus);
    c.first = mma_s8(m, half_of(c.x, lane, 0), make_int4(0, 0, 0, 0));
    c.second = mma_s8(m, half_of(c.x, lane, 1), make_int4(0, 0, 0, 0));
#elif KIND == MINIMUM
    const u32 one = 0x01010101u;
    const int4 sum = mma_s8(make_uint4(one, one, one, one), c.x, exact);
    c.t0 = as_number(sum.x) * c.x0;
    c.t1 = as_number(sum.y) * c.x1;
#endif
}

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
    const int4 p = mma_s8(a, half_of(c.x, lane, 0), c.first), q = mma_s8(a, half_of(c.x, lane, 1), c.second);
    const int a0 = (i8)s.sub, a1 = (i8)(s.sub >> 8), b0 = (i8)(s.sub >> 16), b1 = (i8)(s.sub >> 24);
    acc[0] = __fmaf_rn((float)(a0 * p.x + a1 * q.x), s.a * c.x0, acc[0]);
    acc[2] = __fmaf_rn((float)(b0 * p.z + b1 * q.z), s.b * c.x0, acc[2]);
    if (!ONE) {
        acc[1] = __fmaf_rn((float)(a0 * p.y + a1 * q.y), s.a * c.x1, acc[1]);
        acc[3] = __fmaf_rn((float)(b0 * p.w + b1 * q.w), s.b * c.x1, acc[3]);
    }
#else
    const int4 p = mma_s8(a, half_of(c.x, lane, 0), c.first), q = mma_s8(a, half_of(c.x, lane, 1), c.first);
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
    extern __shared__ float chains[];
    const int lane = threadIdx.x % 32, w = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const int units = (blocks + 31) / 32, own = (blocks - w + 7) / 8, column = blockIdx.y * (8 * NT);
    const size_t tile_bytes = (size_t)units * (SHARED_BYTES + 8 * UNIT_BYTES);
    const int first_tile = blockIdx.x * ROW_TILES;
    const u8* tiles[ROW_TILES];
#pragma unroll
    for (int r = 0; r < ROW_TILES; r++) tiles[r] = weights + (size_t)min(first_tile + r, row_tiles - 1) * tile_bytes;
    const size_t chain = (size_t)units * SHARED_BYTES + (size_t)w * units * UNIT_BYTES;

    float acc[ROW_TILES][NT][4] = {};
    Raw ring[DEPTH][ROW_TILES];
#pragma unroll
    for (int d = 0; d < DEPTH; d++)
        if (4 * d < own)
#pragma unroll
            for (int r = 0; r < ROW_TILES; r++)
                load(ring[d][r], tiles[r] + chain + (size_t)d * UNIT_BYTES, tiles[r] + (size_t)d * SHARED_BYTES, lane);

    for (int unit = 0; 4 * unit < own; unit += DEPTH) {
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            if (4 * (unit + d) >= own) break;
            Raw now[ROW_TILES];
            Scales kept[ROW_TILES];
#pragma unroll
            for (int r = 0; r < ROW_TILES; r++) {
                now[r] = ring[d][r];
                kept[r] = scales(now[r]);
                const int next = unit + d + DEPTH;
                if (4 * next < own)
                    load(ring[d][r], tiles[r] + chain + (size_t)next * UNIT_BYTES, tiles[r] + (size_t)next * SHARED_BYTES, lane);
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int j = 4 * (unit + d) + i;
                const int block = 8 * min(j, own - 1) + w;
                Columns c[NT];
#pragma unroll
                for (int n = 0; n < NT; n++) {
                    const int col = column + 8 * n;
                    c[n].x = make_uint2(0, 0);
                    if (col + g < m && j < own) c[n].x = *(const uint2*)(quants + ((size_t)(col + g) * blocks + block) * 32 + 8 * t);
                    const int c0 = ONE ? 0 : min(col + 2 * t, m - 1), c1 = ONE ? 0 : min(col + 2 * t + 1, m - 1);
                    c[n].x0 = x_scales[(size_t)c0 * blocks + block];
                    c[n].x1 = ONE ? 0.0f : x_scales[(size_t)c1 * blocks + block];
                }
                if (j < own) {
#pragma unroll
                    for (int n = 0; n < NT; n++) begin(c[n], lane);
#pragma unroll
                    for (int r = 0; r < ROW_TILES; r++) {
                        const uint4 a = tile(now[r], i);
                        const Scales s = of_tile(kept[r], lane, i);
#pragma unroll
                        for (int n = 0; n < NT; n++) fold<ONE>(acc[r][n], a, c[n], s, lane);
                    }
                }
            }
        }
    }

    // chains[w][column][row]
    constexpr int ROWS = 16 * ROW_TILES, COLUMNS = ONE ? 1 : 8 * NT;
#pragma unroll
    for (int r = 0; r < ROW_TILES; r++)
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int c = ONE ? 0 : 8 * n + 2 * t + e % 2;
                if (!ONE || (t == 0 && e % 2 == 0)) chains[(w * COLUMNS + c) * ROWS + 16 * r + g + 8 * (e / 2)] = acc[r][n][e];
            }
    __syncthreads();
    for (int i = threadIdx.x; i < ROWS * COLUMNS; i += 256) {
        const int row = i % ROWS, c = column + i / ROWS, of = first_tile + row / 16;
        if (c >= m || of >= row_tiles) continue;
        const uint2 place = places[of];
        if (row % 16 >= (int)place.y) continue;
        float v[8];
#pragma unroll
        for (int k = 0; k < 8; k++) v[k] = chains[k * ROWS * COLUMNS + i];
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
}

#define ENTRY(name, NT, ONE, BLOCKS)                                                                                           \
    extern "C" __global__ void __launch_bounds__(256, BLOCKS) name(                                                        \
        const u8* weights, const uint2* places, const i8* quants, const float* x_scales, const float* residual,                \
        const float* outer, float* out, int m, int blocks, int row_tiles, int width) {                                         \
        product<NT, ONE>(weights, places, quants, x_scales, residual, outer, out, m, blocks, row_tiles, width);                \
    }

ENTRY(product1, 1, true, MIN_BLOCKS)
ENTRY(product8, 1, false, MIN_BLOCKS)
ENTRY(product16, 2, false, MIN_BLOCKS)
ENTRY(product32, 4, false, MIN_BLOCKS)
#if ROW_TILES <= 2
ENTRY(product64, 8, false, 1)
#endif
