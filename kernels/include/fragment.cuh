// Quantised weights in fragment order: how units are read, unpacked and scaled, and how the activation is staged for them. FORMAT_*
// selects the format.
#pragma once
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

// The quants of a unit, as they were read.
struct Quants {
    uint4 quants[QUANT_LOADS];
#ifdef HIGH_WORDS
    u32 high[HIGH_WORDS];
#endif
};

// The words that scales of one block, rows g and g + 8, are made of.
struct Words {
    u32 scale[SCALE_WORDS];
};

// Those of the four blocks of a unit.
struct Run {
    Words block[4];
};

// Where a unit lies: offsets from the first byte of the weight, of the chain's own bytes and of what all chains share.
struct Place {
    const u8* weights;
    u32 unit, shared;
};

// Scales of a block, rows g and g + 8.
struct Scales {
    float a, b;  // SCALED, MINIMUM: scale of row g, of row g + 8; MICRO16: first half
    float c, d;  // MINIMUM: minimum of row g, of row g + 8; MICRO16: second half
    u32 sub;     // SUB16: four signed bytes: row g first and second half, row g + 8 first and second half
};

// A codebook of sixteen signed bytes, and the masks of its lookup.
struct Table {
#if defined(FORMAT_IQ4_XS) || defined(FORMAT_NVFP4)
    u32 value[4], index, bit, identity;
#endif
};

// The table in registers, read back from shared memory: a constant that the compiler knows it moves to a register for every use. All
// threads write the same words.
__device__ __forceinline__ Table table() {
    Table b;
#if defined(FORMAT_IQ4_XS) || defined(FORMAT_NVFP4)
    __shared__ u32 words[32];
    const auto held = [&](u32 v, int i) {
        volatile u32* word = words + i;
        *word = v;
        return *word;
    };
#if defined(FORMAT_IQ4_XS)
    b.value[0] = held(0xBFAD9881u, 0), b.value[1] = held(0xF6EADDCFu, 1), b.value[2] = held(0x26190D01u, 2), b.value[3] = held(0x71594535u, 3);
#else
    // Twice the value of an e2m1: 0 1 2 3 4 6 8 12, then the negative ones.
    b.value[0] = held(0x03020100u, 0), b.value[1] = held(0x0C080604u, 1), b.value[2] = held(0xFDFEFF00u, 2), b.value[3] = held(0xF4F8FAFCu, 3);
#endif
    b.index = held(0x77777777u, 4), b.bit = held(0x44444444u, 5), b.identity = held(0x32103210u, 6);
#endif
    return b;
}

__device__ __forceinline__ float half_at(u32 word, int i) {
    return __half2float(__ushort_as_half((unsigned short)(word >> (16 * i))));
}

__device__ __forceinline__ u32 low_nibbles(u32 w) { return w & 0x0F0F0F0Fu; }
__device__ __forceinline__ u32 high_nibbles(u32 w) { return (w >> 4) & 0x0F0F0F0Fu; }

#if defined(FORMAT_Q8_0)
#define KIND SCALED
#define OFFSET 0
__device__ __forceinline__ void load(Quants& r, const Place& p, int lane) {
#pragma unroll
    for (int i = 0; i < 4; i++) r.quants[i] = load_weights(p.weights + (p.unit + 16 * lane) + i * 512);
}
#define SCALES_AT 2048
__device__ __forceinline__ Scales scales(const Words& r) { return {half_at(r.scale[0], 0), half_at(r.scale[0], 1), 0, 0, 0}; }
__device__ __forceinline__ uint4 tile(const Quants& r, int i, const Table& b) { return r.quants[i]; }

#else
// Two blocks of nibbles are a load of sixteen bytes a lane; a word has the elements of row g in its low and of row g + 8 in its
// high nibbles.
__device__ __forceinline__ uint4 nibbles(const Quants& r, int i) {
    const uint4 q = r.quants[i / 2];
    const u32 first = i % 2 ? q.z : q.x, second = i % 2 ? q.w : q.y;
    return make_uint4(low_nibbles(first), high_nibbles(first), low_nibbles(second), high_nibbles(second));
}
__device__ __forceinline__ void load_nibbles(Quants& r, const Place& p, int lane) {
    r.quants[0] = load_weights(p.weights + (p.unit + 16 * lane));
    r.quants[1] = load_weights(p.weights + (p.unit + 16 * lane) + 512);
}
#if defined(HIGH_BIT)
// Bit j of a byte of the words of high bits belongs to register j of two blocks; a lane has two such words.
__device__ __forceinline__ uint4 with_high_bit(const Quants& r, int i, uint4 q) {
    const u32 h = r.high[i / 2] >> (4 * (i % 2));
    return make_uint4(q.x | ((h << 4) & 0x10101010u), q.y | ((h << 3) & 0x10101010u), q.z | ((h << 2) & 0x10101010u),
                      q.w | ((h << 1) & 0x10101010u));
}
#endif
#if defined(FORMAT_IQ4_XS) || defined(FORMAT_NVFP4)
// The codebook entries of eight indices, which are the nibbles of a word.
__device__ __forceinline__ uint2 lookup8(u32 indices, const Table& b) {
    const u32 entry = indices & b.index, side = (indices >> 1 & b.bit) | b.identity;
    uint2 r;
    r.x = permute(permute(b.value[0], b.value[1], entry), permute(b.value[2], b.value[3], entry), side);
    const u32 upper = entry >> 16;
    r.y = permute(permute(b.value[0], b.value[1], upper), permute(b.value[2], b.value[3], upper), side >> 16);
    return r;
}
// Four words of signed bytes from two words of indices, each with four elements of row g in its low and of row g + 8 in its high half.
__device__ __forceinline__ uint4 codebook(const Quants& r, int i, const Table& b) {
    const uint4 q = r.quants[i / 2];
    const uint2 first = lookup8(i % 2 ? q.z : q.x, b), second = lookup8(i % 2 ? q.w : q.y, b);
    return make_uint4(first.x, first.y, second.x, second.y);
}
#endif

#if defined(FORMAT_Q4_0)
#define KIND SCALED
#define OFFSET 8
__device__ __forceinline__ void load(Quants& r, const Place& p, int lane) { load_nibbles(r, p, lane); }
#define SCALES_AT 1024
__device__ __forceinline__ Scales scales(const Words& r) { return {half_at(r.scale[0], 0), half_at(r.scale[0], 1), 0, 0, 0}; }
__device__ __forceinline__ uint4 tile(const Quants& r, int i, const Table& b) { return nibbles(r, i); }

#elif defined(FORMAT_Q5_0)
#define KIND SCALED
#define OFFSET 16
__device__ __forceinline__ void load(Quants& r, const Place& p, int lane) {
    load_nibbles(r, p, lane);
    const uint2 h = load_weights8(p.weights + (p.unit + 8 * lane) + 1024);
    r.high[0] = h.x, r.high[1] = h.y;
}
#define SCALES_AT 1280
__device__ __forceinline__ Scales scales(const Words& r) { return {half_at(r.scale[0], 0), half_at(r.scale[0], 1), 0, 0, 0}; }
__device__ __forceinline__ uint4 tile(const Quants& r, int i, const Table& b) { return with_high_bit(r, i, nibbles(r, i)); }

#elif defined(FORMAT_Q4_1) || defined(FORMAT_Q5_1)
#define KIND MINIMUM
#if defined(HIGH_BIT)
__device__ __forceinline__ void load(Quants& r, const Place& p, int lane) {
    load_nibbles(r, p, lane);
    const uint2 h = load_weights8(p.weights + (p.unit + 8 * lane) + 1024);
    r.high[0] = h.x, r.high[1] = h.y;
}
#define SCALES_AT 1280
#else
__device__ __forceinline__ void load(Quants& r, const Place& p, int lane) { load_nibbles(r, p, lane); }
#define SCALES_AT 1024
#endif
__device__ __forceinline__ Scales scales(const Words& r) {
    return {half_at(r.scale[0], 0), half_at(r.scale[0], 1), half_at(r.scale[1], 0), half_at(r.scale[1], 1), 0};
}
__device__ __forceinline__ uint4 tile(const Quants& r, int i, const Table& b) {
#if defined(HIGH_BIT)
    return with_high_bit(r, i, nibbles(r, i));
#else
    return nibbles(r, i);
#endif
}

#elif defined(FORMAT_Q4_K) || defined(FORMAT_Q5_K)
#define KIND MINIMUM
#if defined(HIGH_BIT)
__device__ __forceinline__ void load(Quants& r, const Place& p, int lane) {
    load_nibbles(r, p, lane);
    const uint2 h = load_weights8(p.weights + (p.unit + 8 * lane) + 1024);
    r.high[0] = h.x, r.high[1] = h.y;
}
#define SCALES_AT 1280
#else
__device__ __forceinline__ void load(Quants& r, const Place& p, int lane) { load_nibbles(r, p, lane); }
#define SCALES_AT 1024
#endif
// Six bits each, from the lowest: scale and minimum of row g, scale and minimum of row g + 8; two bytes and then one a lane.
__device__ __forceinline__ Scales scales(const Words& r) {
    const u32 p = r.scale[0];
    const float d0 = half_at(r.scale[1], 0), m0 = half_at(r.scale[1], 1), d1 = half_at(r.scale[2], 0), m1 = half_at(r.scale[2], 1);
    return {d0 * (float)(p & 63), d1 * (float)(p >> 12 & 63), -(m0 * (float)(p >> 6 & 63)), -(m1 * (float)(p >> 18 & 63)), 0};
}
__device__ __forceinline__ uint4 tile(const Quants& r, int i, const Table& b) {
#if defined(HIGH_BIT)
    return with_high_bit(r, i, nibbles(r, i));
#else
    return nibbles(r, i);
#endif
}

#elif defined(FORMAT_Q6_K)
#define KIND SUB16
#define OFFSET 32
__device__ __forceinline__ void load(Quants& r, const Place& p, int lane) {
    load_nibbles(r, p, lane);
    const uint4 h = load_weights(p.weights + (p.unit + 16 * lane) + 1024);
    r.high[0] = h.x, r.high[1] = h.y, r.high[2] = h.z, r.high[3] = h.w;
}
#define SCALES_AT 1536
__device__ __forceinline__ Scales scales(const Words& r) {
    return {half_at(r.scale[1], 0), half_at(r.scale[1], 1), 0, 0, r.scale[0]};
}
// Bits 2 j and 2 j + 1 of a byte of the word of high bits belong to register j.
__device__ __forceinline__ uint4 tile(const Quants& r, int i, const Table& b) {
    const uint4 q = nibbles(r, i);
    const u32 h = r.high[i];
    return make_uint4(q.x | ((h << 4) & 0x30303030u), q.y | ((h << 2) & 0x30303030u), q.z | (h & 0x30303030u),
                      q.w | ((h >> 2) & 0x30303030u));
}

#elif defined(FORMAT_IQ4_XS)
#define KIND SCALED
#define OFFSET 0
__device__ __forceinline__ void load(Quants& r, const Place& p, int lane) { load_nibbles(r, p, lane); }
#define SCALES_AT 1024
// A scale of six bits a row, two rows a lane: the low nibbles of both in a byte; the upper pairs of bits of both in a nibble, which
// is that of an even lane in the low half of a byte.
__device__ __forceinline__ Scales scales(const Words& r) {
    const u32 p = r.scale[0];
    const int s0 = (int)((p & 15) | (p >> 8 & 3) << 4) - 32, s1 = (int)((p >> 4 & 15) | (p >> 10 & 3) << 4) - 32;
    return {half_at(r.scale[1], 0) * (float)s0, half_at(r.scale[1], 1) * (float)s1, 0, 0, 0};
}
__device__ __forceinline__ uint4 tile(const Quants& r, int i, const Table& b) {
    return codebook(r, i, b);
}

#elif defined(FORMAT_NVFP4)
#define KIND MICRO16
__device__ __forceinline__ void load(Quants& r, const Place& p, int lane) { load_nibbles(r, p, lane); }
#define SCALES_AT 1024
// An unsigned e4m3 as half, exact: exponent and mantissa go to their places and the bias is made up by a multiplication.
__device__ __forceinline__ float e4m3_half(u32 byte) {
    const u32 bits = (byte & 0x7Fu) << 7;
    return __half2float(__ushort_as_half((unsigned short)bits)) * 128.0f;
}
__device__ __forceinline__ Scales scales(const Words& r) {
    const u32 p = r.scale[0];
    return {e4m3_half(p), e4m3_half(p >> 16), e4m3_half(p >> 8), e4m3_half(p >> 24), 0};
}
__device__ __forceinline__ uint4 tile(const Quants& r, int i, const Table& b) {
    return codebook(r, i, b);
}
#endif
#endif

__device__ __forceinline__ float as_number(int bits) { return __fsub_rn(__int_as_float(bits), EXACT_INT); }


// The words of block t of a unit, which lane 4 g + t keeps.
__device__ __forceinline__ void load(Words& r, const Place& p, int lane) {
    const u8* at = p.weights + p.unit + SCALES_AT;
#if defined(FORMAT_Q4_1) || defined(FORMAT_Q5_1)
    const uint2 s = load_weights8(at + 8 * lane);
    r.scale[0] = s.x, r.scale[1] = s.y;
#elif defined(FORMAT_Q4_K) || defined(FORMAT_Q5_K)
    r.scale[0] = load_weights2(at + 2 * lane) | load_weights1(at + lane + 64) << 16;
    const uint2 d = *(const uint2*)(p.weights + (p.shared + 8 * lane));
    r.scale[1] = d.x, r.scale[2] = d.y;
#elif defined(FORMAT_IQ4_XS)
    r.scale[0] = load_weights1(at + lane) | (load_weights1(at + lane / 2 + 32) >> (4 * (lane % 2)) & 15) << 8;
    r.scale[1] = *(const u32*)(p.weights + (p.shared + 4 * lane));
#else
    r.scale[0] = load_weights4(at + 4 * lane);
#if defined(FORMAT_Q6_K)
    r.scale[1] = *(const u32*)(p.weights + (p.shared + 4 * lane));
#endif
#endif
}

// The words of all four blocks of a unit, rows g and g + 8.
__device__ __forceinline__ void load(Run& r, const Place& p, int g) {
    const u8* at = p.weights + p.unit + SCALES_AT;
#if defined(FORMAT_Q4_1) || defined(FORMAT_Q5_1)
    const uint4 s = load_weights(at + 32 * g), u = load_weights(at + 32 * g + 16);
    r.block[0].scale[0] = s.x, r.block[0].scale[1] = s.y, r.block[1].scale[0] = s.z, r.block[1].scale[1] = s.w;
    r.block[2].scale[0] = u.x, r.block[2].scale[1] = u.y, r.block[3].scale[0] = u.z, r.block[3].scale[1] = u.w;
#elif defined(FORMAT_Q4_K) || defined(FORMAT_Q5_K)
    const uint2 low = load_weights8(at + 8 * g);
    const u32 high = load_weights4(at + 4 * g + 64);
    r.block[0].scale[0] = (low.x & 0xFFFFu) | high << 16;
    r.block[1].scale[0] = low.x >> 16 | (high << 8 & 0xFF0000u);
    r.block[2].scale[0] = (low.y & 0xFFFFu) | (high & 0xFF0000u);
    r.block[3].scale[0] = low.y >> 16 | (high >> 8 & 0xFF0000u);
    const uint4* shared = (const uint4*)(p.weights + (p.shared + 32 * g));
    const uint4 d = shared[0], e = shared[1];
    r.block[0].scale[1] = d.x, r.block[0].scale[2] = d.y, r.block[1].scale[1] = d.z, r.block[1].scale[2] = d.w;
    r.block[2].scale[1] = e.x, r.block[2].scale[2] = e.y, r.block[3].scale[1] = e.z, r.block[3].scale[2] = e.w;
#elif defined(FORMAT_IQ4_XS)
    const u32 low = load_weights4(at + 4 * g), high = load_weights2(at + 2 * g + 32);
    const uint4 d = *(const uint4*)(p.weights + (p.shared + 16 * g));
#pragma unroll
    for (int i = 0; i < 4; i++) r.block[i].scale[0] = (low >> (8 * i) & 0xFFu) | (high >> (4 * i) & 15) << 8;
    r.block[0].scale[1] = d.x, r.block[1].scale[1] = d.y, r.block[2].scale[1] = d.z, r.block[3].scale[1] = d.w;
#else
    const uint4 s = load_weights(at + 16 * g);
    r.block[0].scale[0] = s.x, r.block[1].scale[0] = s.y, r.block[2].scale[0] = s.z, r.block[3].scale[0] = s.w;
#if defined(FORMAT_Q6_K)
    const uint4 d = *(const uint4*)(p.weights + (p.shared + 16 * g));
    r.block[0].scale[1] = d.x, r.block[1].scale[1] = d.y, r.block[2].scale[1] = d.z, r.block[3].scale[1] = d.w;
#endif
#endif
}

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
