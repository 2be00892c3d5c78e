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

// Where a unit lies: offsets from the first byte of the weight, of the chain's own bytes and of what all chains share.
struct Place {
    const u8* weights;
    u32 unit, shared;
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
__device__ __forceinline__ void load(Raw& r, const Place& p, int lane) {
#pragma unroll
    for (int i = 0; i < 4; i++) r.quants[i] = load_weights(p.weights + (p.unit + 16 * lane) + i * 512);
    r.scale[0] = load_weights4(p.weights + (p.unit + 4 * lane) + 2048);
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
__device__ __forceinline__ void load_nibbles(Raw& r, const Place& p, int lane) {
    r.quants[0] = load_weights(p.weights + (p.unit + 16 * lane));
    r.quants[1] = load_weights(p.weights + (p.unit + 16 * lane) + 512);
}
#if defined(HIGH_BIT)
// Bit j of a byte of the words of high bits belongs to register j of two blocks; a lane has two such words.
__device__ __forceinline__ uint4 with_high_bit(const Raw& r, int i, uint4 q) {
    const u32 h = r.high[i / 2] >> (4 * (i % 2));
    return make_uint4(q.x | ((h << 4) & 0x10101010u), q.y | ((h << 3) & 0x10101010u), q.z | ((h << 2) & 0x10101010u),
                      q.w | ((h << 1) & 0x10101010u));
}
#endif
// The codebook entries of eight indices, which are the nibbles of a word; the table as sixteen signed bytes in four words.
__device__ __forceinline__ uint2 lookup8(u32 indices, u32 t0, u32 t1, u32 t2, u32 t3) {
    const u32 entry = indices & 0x77777777u, side = (indices >> 1 & 0x44444444u) | 0x32103210u;
    uint2 r;
    r.x = __byte_perm(__byte_perm(t0, t1, entry), __byte_perm(t2, t3, entry), side);
    r.y = __byte_perm(__byte_perm(t0, t1, entry >> 16), __byte_perm(t2, t3, entry >> 16), side >> 16);
    return r;
}
// Four words of signed bytes from two words of indices, each with four elements of row g in its low and of row g + 8 in its high half.
__device__ __forceinline__ uint4 codebook(const Raw& r, int i, u32 t0, u32 t1, u32 t2, u32 t3) {
    const uint4 q = r.quants[i / 2];
    const uint2 first = lookup8(i % 2 ? q.z : q.x, t0, t1, t2, t3), second = lookup8(i % 2 ? q.w : q.y, t0, t1, t2, t3);
    return make_uint4(first.x, first.y, second.x, second.y);
}

#if defined(FORMAT_Q4_0)
#define KIND SCALED
#define OFFSET 8
__device__ __forceinline__ void load(Raw& r, const Place& p, int lane) {
    load_nibbles(r, p, lane);
    r.scale[0] = load_weights4(p.weights + (p.unit + 4 * lane) + 1024);
}
__device__ __forceinline__ Scales scales(const Raw& r) { return {half_at(r.scale[0], 0), half_at(r.scale[0], 1), 0, 0, 0}; }
__device__ __forceinline__ uint4 tile(const Raw& r, int i) { return nibbles(r, i); }

#elif defined(FORMAT_Q5_0)
#define KIND SCALED
#define OFFSET 16
__device__ __forceinline__ void load(Raw& r, const Place& p, int lane) {
    load_nibbles(r, p, lane);
    const uint2 h = load_weights8(p.weights + (p.unit + 8 * lane) + 1024);
    r.high[0] = h.x, r.high[1] = h.y;
    r.scale[0] = load_weights4(p.weights + (p.unit + 4 * lane) + 1280);
}
__device__ __forceinline__ Scales scales(const Raw& r) { return {half_at(r.scale[0], 0), half_at(r.scale[0], 1), 0, 0, 0}; }
__device__ __forceinline__ uint4 tile(const Raw& r, int i) { return with_high_bit(r, i, nibbles(r, i)); }

#elif defined(FORMAT_Q4_1) || defined(FORMAT_Q5_1)
#define KIND MINIMUM
__device__ __forceinline__ void load(Raw& r, const Place& p, int lane) {
    load_nibbles(r, p, lane);
#if defined(HIGH_BIT)
    const uint2 h = load_weights8(p.weights + (p.unit + 8 * lane) + 1024);
    r.high[0] = h.x, r.high[1] = h.y;
    const uint2 s = load_weights8(p.weights + (p.unit + 8 * lane) + 1280);
#else
    const uint2 s = load_weights8(p.weights + (p.unit + 8 * lane) + 1024);
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
__device__ __forceinline__ void load(Raw& r, const Place& p, int lane) {
    load_nibbles(r, p, lane);
#if defined(HIGH_BIT)
    const uint2 h = load_weights8(p.weights + (p.unit + 8 * lane) + 1024);
    r.high[0] = h.x, r.high[1] = h.y;
    r.scale[0] = load_weights2(p.weights + (p.unit + 2 * lane) + 1280) | load_weights1(p.weights + (p.unit + lane) + 1344) << 16;
#else
    r.scale[0] = load_weights2(p.weights + (p.unit + 2 * lane) + 1024) | load_weights1(p.weights + (p.unit + lane) + 1088) << 16;
#endif
    const uint2 d = *(const uint2*)(p.weights + (p.shared + 8 * lane));
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
__device__ __forceinline__ void load(Raw& r, const Place& p, int lane) {
    load_nibbles(r, p, lane);
    const uint4 h = load_weights(p.weights + (p.unit + 16 * lane) + 1024);
    r.high[0] = h.x, r.high[1] = h.y, r.high[2] = h.z, r.high[3] = h.w;
    r.scale[0] = load_weights4(p.weights + (p.unit + 4 * lane) + 1536);
    r.scale[1] = *(const u32*)(p.weights + (p.shared + 4 * lane));
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
__device__ __forceinline__ void load(Raw& r, const Place& p, int lane) {
    load_nibbles(r, p, lane);
    r.scale[0] = load_weights1(p.weights + (p.unit + lane) + 1024) | (load_weights1(p.weights + (p.unit + lane / 2) + 1056) >> (4 * (lane % 2)) & 15) << 8;
    r.scale[1] = *(const u32*)(p.weights + (p.shared + 4 * lane));
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
__device__ __forceinline__ void load(Raw& r, const Place& p, int lane) {
    load_nibbles(r, p, lane);
    r.scale[0] = load_weights4(p.weights + (p.unit + 4 * lane) + 1024);
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
#if KIND == SUB16 || KIND == MICRO16
        to[0] = make_uint4(v[0].x, v[1].x, v[0].y, v[1].y);
        to[1] = make_uint4(v[0].z, v[1].z, v[0].w, v[1].w);
#else
        to[0] = v[0];
        to[1] = v[1];
#endif
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
    Raw ring[DEPTH][ROW_TILES];
    const auto fetch = [&](Raw(&to)[ROW_TILES]) {
        if (loads <= 0) return;
        loads--;
#pragma unroll
        for (int r = 0; r < ROW_TILES; r++) {
            load(to[r], next[r], lane);
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
    for (int d = 0; d < DEPTH; d++) fetch(ring[d]);

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
            fetch(ring[d]);
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
