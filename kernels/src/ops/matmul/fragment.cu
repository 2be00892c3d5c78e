// Products of quantised weights in fragment order, m = 1 and up, in the eight chains of the integer order classes.
//
// A block of 16 rows x 32 is one tensor-core operand, exact in integers, and every output folds it into its chain as the class
// says. A warp owns one chain of 16 * ROW_TILES rows. Without CLUSTER the eight warps of a block own the eight chains of the same
// rows; with it a block is one chain of 8 * 16 * ROW_TILES rows, and a cluster of eight blocks has the eight chains, so that a block
// stages only its own eighth of the activation. The chains meet in shared memory and are added in a pair tree.
//
// Lane l of a warp stands for row g = l / 4 (and g + 8) and elements 8 t .. 8 t + 7 of a block, t = l % 4: which elements a lane
// holds is free inside an exact sum, and this way an activation is one load of eight bytes.
//
// Four blocks of a chain are a unit. A row tile lies in memory as SHARED_BYTES a unit that all chains read, then for each chain its
// units of UNIT_BYTES.
//
// FORMAT_*, ROW_TILES, DEPTH (units in registers), CLUSTER (0 or 1) and MIN_BLOCKS are defined by the variant.
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

// Where the next unit of a lane lies in planes of 16, 8, 4, 2, 1 and half a byte a lane, and in what all chains share.
struct Streams {
    const u8* by16;
    const u8* shared;
#if defined(FORMAT_Q5_0) || defined(FORMAT_Q4_1) || defined(FORMAT_Q5_1) || defined(FORMAT_Q5_K)
    const u8* by8;
#endif
#if !defined(FORMAT_Q4_1) && !defined(FORMAT_Q5_1) && !defined(FORMAT_Q4_K) && !defined(FORMAT_Q5_K) && !defined(FORMAT_IQ4_XS)
    const u8* by4;
#endif
#if defined(FORMAT_Q4_K) || defined(FORMAT_Q5_K)
    const u8* by2;
#endif
#if defined(FORMAT_Q4_K) || defined(FORMAT_Q5_K) || defined(FORMAT_IQ4_XS)
    const u8* by1;
#endif
#if defined(FORMAT_IQ4_XS)
    const u8* by_half;
    int nibble;
#endif

    __device__ __forceinline__ Streams(const u8* units, const u8* of_all, int lane) : by16(units + 16 * lane) {
        shared = of_all + lane * (SHARED_BYTES / 32);
#if defined(FORMAT_Q5_0) || defined(FORMAT_Q4_1) || defined(FORMAT_Q5_1) || defined(FORMAT_Q5_K)
        by8 = units + 8 * lane;
#endif
#if !defined(FORMAT_Q4_1) && !defined(FORMAT_Q5_1) && !defined(FORMAT_Q4_K) && !defined(FORMAT_Q5_K) && !defined(FORMAT_IQ4_XS)
        by4 = units + 4 * lane;
#endif
#if defined(FORMAT_Q4_K) || defined(FORMAT_Q5_K)
        by2 = units + 2 * lane;
#endif
#if defined(FORMAT_Q4_K) || defined(FORMAT_Q5_K) || defined(FORMAT_IQ4_XS)
        by1 = units + lane;
#endif
#if defined(FORMAT_IQ4_XS)
        by_half = units + lane / 2;
        nibble = 4 * (lane % 2);
#endif
    }

    __device__ __forceinline__ void next() {
        by16 += UNIT_BYTES;
        if (SHARED_BYTES) shared += SHARED_BYTES;
#if defined(FORMAT_Q5_0) || defined(FORMAT_Q4_1) || defined(FORMAT_Q5_1) || defined(FORMAT_Q5_K)
        by8 += UNIT_BYTES;
#endif
#if !defined(FORMAT_Q4_1) && !defined(FORMAT_Q5_1) && !defined(FORMAT_Q4_K) && !defined(FORMAT_Q5_K) && !defined(FORMAT_IQ4_XS)
        by4 += UNIT_BYTES;
#endif
#if defined(FORMAT_Q4_K) || defined(FORMAT_Q5_K)
        by2 += UNIT_BYTES;
#endif
#if defined(FORMAT_Q4_K) || defined(FORMAT_Q5_K) || defined(FORMAT_IQ4_XS)
        by1 += UNIT_BYTES;
#endif
#if defined(FORMAT_IQ4_XS)
        by_half += UNIT_BYTES;
#endif
    }
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
__device__ __forceinline__ void load(Raw& r, const Streams& p) {
#pragma unroll
    for (int i = 0; i < 4; i++) r.quants[i] = load_weights(p.by16 + i * 512);
    r.scale[0] = load_weights4(p.by4 + 2048);
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
__device__ __forceinline__ void load_nibbles(Raw& r, const Streams& p) {
    r.quants[0] = load_weights(p.by16);
    r.quants[1] = load_weights(p.by16 + 512);
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
__device__ __forceinline__ void load(Raw& r, const Streams& p) {
    load_nibbles(r, p);
    r.scale[0] = load_weights4(p.by4 + 1024);
}
__device__ __forceinline__ Scales scales(const Raw& r) { return {half_at(r.scale[0], 0), half_at(r.scale[0], 1), 0, 0, 0}; }
__device__ __forceinline__ uint4 tile(const Raw& r, int i) { return nibbles(r, i); }

#elif defined(FORMAT_Q5_0)
#define KIND SCALED
#define OFFSET 16
__device__ __forceinline__ void load(Raw& r, const Streams& p) {
    load_nibbles(r, p);
    const uint2 h = load_weights8(p.by8 + 1024);
    r.high[0] = h.x, r.high[1] = h.y;
    r.scale[0] = load_weights4(p.by4 + 1280);
}
__device__ __forceinline__ Scales scales(const Raw& r) { return {half_at(r.scale[0], 0), half_at(r.scale[0], 1), 0, 0, 0}; }
__device__ __forceinline__ uint4 tile(const Raw& r, int i) { return with_high_bit(r, i, nibbles(r, i)); }

#elif defined(FORMAT_Q4_1) || defined(FORMAT_Q5_1)
#define KIND MINIMUM
__device__ __forceinline__ void load(Raw& r, const Streams& p) {
    load_nibbles(r, p);
#if defined(HIGH_BIT)
    const uint2 h = load_weights8(p.by8 + 1024);
    r.high[0] = h.x, r.high[1] = h.y;
    const uint2 s = load_weights8(p.by8 + 1280);
#else
    const uint2 s = load_weights8(p.by8 + 1024);
#endif
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
// Six bits each, from the lowest: scale and minimum of row g, scale and minimum of row g + 8; two bytes and then one a lane.
__device__ __forceinline__ void load(Raw& r, const Streams& p) {
    load_nibbles(r, p);
#if defined(HIGH_BIT)
    const uint2 h = load_weights8(p.by8 + 1024);
    r.high[0] = h.x, r.high[1] = h.y;
    r.scale[0] = load_weights2(p.by2 + 1280) | load_weights1(p.by1 + 1344) << 16;
#else
    r.scale[0] = load_weights2(p.by2 + 1024) | load_weights1(p.by1 + 1088) << 16;
#endif
    const uint2 d = *(const uint2*)p.shared;
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
__device__ __forceinline__ void load(Raw& r, const Streams& p) {
    load_nibbles(r, p);
    const uint4 h = load_weights(p.by16 + 1024);
    r.high[0] = h.x, r.high[1] = h.y, r.high[2] = h.z, r.high[3] = h.w;
    r.scale[0] = load_weights4(p.by4 + 1536);
    r.scale[1] = *(const u32*)p.shared;
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
// A scale of six bits a row, two rows a lane: the low nibbles of both in a byte; the upper pairs of bits of both in a nibble, which is
// that of an even lane in the low half of a byte.
__device__ __forceinline__ void load(Raw& r, const Streams& p) {
    load_nibbles(r, p);
    r.scale[0] = load_weights1(p.by1 + 1024) | (load_weights1(p.by_half + 1056) >> p.nibble & 15) << 8;
    r.scale[1] = *(const u32*)p.shared;
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
__device__ __forceinline__ void load(Raw& r, const Streams& p) {
    load_nibbles(r, p);
    r.scale[0] = load_weights4(p.by4 + 1024);
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

__device__ __forceinline__ float as_number(int bits) { return __fsub_rn(__int_as_float(bits), EXACT_INT); }

// What is kept of a column of the activation beside its bytes: its scale, and what an exact sum starts with (SCALED with an offset:
// one number; SUB16: one for each half) or the scaled sum of its quants (MINIMUM).
#if KIND == SUB16
#define ENTRY_WORDS 4
#elif KIND == MINIMUM || (KIND == SCALED && OFFSET > 0)
#define ENTRY_WORDS 2
#else
#define ENTRY_WORDS 1
#endif

// Columns 2 t and 2 t + 1 of a block of eight columns, and eight bytes of column g.
struct Columns {
    uint2 x;
    float x0, x1;
    int4 first, second;
    float t0, t1;
};

__device__ __forceinline__ uint2 half_of(const uint2& x, int lane, int half) {
    return (lane % 4 < 2) == (half == 0) ? x : make_uint2(0, 0);
}

template <bool ONE> __device__ __forceinline__ Columns columns(const u8* bytes, const float* entries, int lane) {
    const int t = lane % 4;
    Columns c;
    c.x = *(const uint2*)(bytes + (ONE ? 8 * t : 8 * lane));
    const int4 exact = make_int4(EXACT_INT_BITS, EXACT_INT_BITS, EXACT_INT_BITS, EXACT_INT_BITS);
    c.first = exact;
#if ENTRY_WORDS == 1
    if (ONE) {
        c.x0 = entries[0];
    } else {
        const float2 e = *(const float2*)(entries + 2 * t);
        c.x0 = e.x, c.x1 = e.y;
    }
#elif ENTRY_WORDS == 2
    float2 p, q;
    if (ONE) {
        p = q = *(const float2*)entries;
    } else {
        const float4 e = *(const float4*)(entries + 4 * t);
        p = make_float2(e.x, e.y), q = make_float2(e.z, e.w);
    }
    c.x0 = p.x, c.x1 = q.x;
#if KIND == MINIMUM
    c.t0 = p.y, c.t1 = q.y;
#else
    c.first = make_int4(__float_as_int(p.y), __float_as_int(q.y), __float_as_int(p.y), __float_as_int(q.y));
#endif
#else
    const float4 p = *(const float4*)(entries + (ONE ? 0 : 8 * t)), q = *(const float4*)(entries + (ONE ? 0 : 8 * t + 4));
    c.x0 = p.x, c.x1 = q.x;
    c.first = make_int4(__float_as_int(p.y), __float_as_int(q.y), __float_as_int(p.y), __float_as_int(q.y));
    c.second = make_int4(__float_as_int(p.z), __float_as_int(q.z), __float_as_int(p.z), __float_as_int(q.z));
#endif
    return c;
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

// Sum of four signed bytes.
__device__ __forceinline__ int sum4(u32 bytes, int c) { return __dp4a((int)bytes, 0x01010101, c); }

// Puts the activation of a chain into shared memory: bytes[tile][columns / 8][lane], entries[tile][column].
template <int NT, bool ONE>
__device__ __forceinline__ void stage(u8* bytes, float* entries, const i8* quants, const float* x_scales, int m, int blocks,
                                      int tiles, int column, int chain, int thread, int threads) {
    constexpr int COLUMNS = ONE ? 1 : 8 * NT;
    for (int i = thread; i < tiles * COLUMNS; i += threads) {
        const int tile = i / COLUMNS, c = i % COLUMNS, block = 8 * tile + chain;
        const size_t at = (size_t)min(column + c, m - 1) * blocks + block;
        uint4 v[2] = {make_uint4(0, 0, 0, 0), make_uint4(0, 0, 0, 0)};
        float scale = 0.0f;
        if (block < blocks) {
            v[0] = ((const uint4*)quants)[2 * at];
            v[1] = ((const uint4*)quants)[2 * at + 1];
            scale = x_scales[at];
        }
        uint4* to = (uint4*)(bytes + (size_t)i * 32);
        to[0] = v[0];
        to[1] = v[1];
        float* e = entries + i * ENTRY_WORDS;
        e[0] = scale;
#if ENTRY_WORDS > 1
        const int low = sum4(v[0].x, sum4(v[0].y, sum4(v[0].z, sum4(v[0].w, 0))));
        const int high = sum4(v[1].x, sum4(v[1].y, sum4(v[1].z, sum4(v[1].w, 0))));
#if KIND == MINIMUM
        e[1] = (float)(low + high) * scale;
#elif KIND == SUB16
        e[1] = __int_as_float(-OFFSET * low);
        e[2] = __int_as_float(-OFFSET * high);
#else
        e[1] = __int_as_float(EXACT_INT_BITS - OFFSET * (low + high));
#endif
#endif
    }
}

#if CLUSTER
__device__ __forceinline__ void cluster_wait() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ u32 cluster_rank() {
    u32 rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
// A float in the shared memory of another block of the cluster.
__device__ __forceinline__ float of_rank(const float* own, u32 rank) {
    u32 address = (u32)__cvta_generic_to_shared(own), there;
    float v;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(there) : "memory");
    return v;
}
#endif

#if CLUSTER
#define CHAIN_VALUE(i, k) of_rank(chains + (i), k)
#else
#define CHAIN_VALUE(i, k) chains[(k) * ROWS * COLUMNS + (i)]
#endif

template <int NT, bool ONE>
__device__ __forceinline__ void product(const u8* __restrict__ weights, const uint2* __restrict__ places,
                                        const i8* __restrict__ quants, const float* __restrict__ x_scales,
                                        const float* __restrict__ residual, const float* __restrict__ outer,
                                        float* __restrict__ out, int m, int blocks, int row_tiles, int width) {
    extern __shared__ __align__(16) u8 memory[];
    constexpr int COLUMNS = ONE ? 1 : 8 * NT;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const int units = (blocks + 31) / 32, tiles = 4 * units, column = blockIdx.y * (8 * NT);
#if CLUSTER
    const int chain = cluster_rank(), first_tile = blockIdx.x / 8 * (8 * ROW_TILES), own_tile = first_tile + warp * ROW_TILES;
    constexpr int ROWS = 8 * 16 * ROW_TILES, STAGED = 1;
#else
    const int chain = warp, first_tile = blockIdx.x * ROW_TILES, own_tile = first_tile;
    constexpr int ROWS = 16 * ROW_TILES, STAGED = 8;
#endif
    const size_t tile_bytes = (size_t)units * (SHARED_BYTES + 8 * UNIT_BYTES);
    Raw ring[DEPTH][ROW_TILES];
    const u8* of_tile_row = weights + (size_t)min(own_tile, row_tiles - ROW_TILES > 0 ? row_tiles - ROW_TILES : 0) * tile_bytes;
    Streams streams[ROW_TILES] = {
        Streams(of_tile_row + (size_t)units * SHARED_BYTES + (size_t)chain * units * UNIT_BYTES, of_tile_row, lane)
#if ROW_TILES == 2
        , Streams(of_tile_row + tile_bytes + (size_t)units * SHARED_BYTES + (size_t)chain * units * UNIT_BYTES,
                  of_tile_row + tile_bytes, lane)
#endif
    };
#pragma unroll
    for (int d = 0; d < DEPTH; d++)
        if (d < units)
#pragma unroll
            for (int r = 0; r < ROW_TILES; r++) {
                load(ring[d][r], streams[r]);
                streams[r].next();
            }

    // bytes[chain][tile][column of eight][lane], entries[chain][tile][column]
    float* const entries_of_all = (float*)(memory + (size_t)STAGED * tiles * COLUMNS * 32);
#if CLUSTER
    stage<NT, ONE>(memory, entries_of_all, quants, x_scales, m, blocks, tiles, column, chain, threadIdx.x, 256);
    const u8* bytes = memory;
    const float* entries = entries_of_all;
#else
    u8* const own_bytes = memory + (size_t)warp * tiles * COLUMNS * 32;
    float* const own_entries = entries_of_all + (size_t)warp * tiles * COLUMNS * ENTRY_WORDS;
    stage<NT, ONE>(own_bytes, own_entries, quants, x_scales, m, blocks, tiles, column, chain, lane, 32);
    const u8* bytes = own_bytes;
    const float* entries = own_entries;
#endif
    __syncthreads();

    float acc[ROW_TILES][NT][4] = {};
    for (int unit = 0; unit < units; unit += DEPTH) {
#pragma unroll
        for (int d = 0; d < DEPTH; d++) {
            if (unit + d >= units) break;
            Scales kept[ROW_TILES];
#pragma unroll
            for (int r = 0; r < ROW_TILES; r++) kept[r] = scales(ring[d][r]);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                Columns c[NT];
#pragma unroll
                for (int n = 0; n < NT; n++)
                    c[n] = columns<ONE>(bytes + (i * COLUMNS + 8 * n) * 32, entries + (i * COLUMNS + 8 * n) * ENTRY_WORDS, lane);
#pragma unroll
                for (int r = 0; r < ROW_TILES; r++) {
                    const uint4 a = tile(ring[d][r], i);
                    const Scales s = of_tile(kept[r], lane, i);
#pragma unroll
                    for (int n = 0; n < NT; n++) fold<ONE>(acc[r][n], a, c[n], s, lane);
                }
            }
            bytes += 4 * COLUMNS * 32;
            entries += 4 * COLUMNS * ENTRY_WORDS;
            if (unit + d + DEPTH < units)
#pragma unroll
                for (int r = 0; r < ROW_TILES; r++) {
                    load(ring[d][r], streams[r]);
                    streams[r].next();
                }
        }
    }

    // chains[warp's chain][column][row], or with CLUSTER [column][row] in the block of the chain
    __syncthreads();
    float* const chains = (float*)memory;
    float* const own = chains + (CLUSTER ? 0 : warp * COLUMNS * ROWS) + (CLUSTER ? 16 * ROW_TILES * warp : 0);
#pragma unroll
    for (int r = 0; r < ROW_TILES; r++)
#pragma unroll
        for (int n = 0; n < NT; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                const int c = ONE ? 0 : 8 * n + 2 * t + e % 2;
                if (!ONE || (t == 0 && e % 2 == 0)) own[c * ROWS + 16 * r + g + 8 * (e / 2)] = acc[r][n][e];
            }
#if CLUSTER
    cluster_wait();
    const int begin = chain * 256 + threadIdx.x, step = 8 * 256;
#else
    __syncthreads();
    const int begin = threadIdx.x, step = 256;
#endif
    for (int i = begin; i < ROWS * COLUMNS; i += step) {
        const int row = i % ROWS, c = column + i / ROWS, of = first_tile + row / 16;
        if (c >= m || of >= row_tiles) continue;
        const uint2 place = places[of];
        if (row % 16 >= (int)place.y) continue;
        float v[8];
#pragma unroll
        for (int k = 0; k < 8; k++) v[k] = CHAIN_VALUE(i, k);
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
ENTRY(product16, 2, false, 2)
ENTRY(product32, 4, false, 2)
ENTRY(product64, 8, false, 1)
#endif
