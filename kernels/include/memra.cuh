// Device words shared by all variants. Everything here is one instruction or a few; no kernel stands in a header.
#pragma once

typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

// Weights are read once: not kept in L1.
__device__ __forceinline__ uint4 load_weights(const void* address) {
    uint4 v;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(address));
    return v;
}
__device__ __forceinline__ uint2 load_weights8(const void* address) {
    uint2 v;
    asm("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(address));
    return v;
}
__device__ __forceinline__ u32 load_weights4(const void* address) {
    u32 v;
    asm("ld.global.nc.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(address));
    return v;
}

__device__ __forceinline__ u32 load_weights2(const void* address) {
    unsigned short v;
    asm("ld.global.nc.L1::no_allocate.u16 %0, [%1];" : "=h"(v) : "l"(address));
    return v;
}
__device__ __forceinline__ u32 load_weights1(const void* address) {
    u32 v;
    asm("ld.global.nc.L1::no_allocate.u8 %0, [%1];" : "=r"(v) : "l"(address));
    return v;
}

// Four bytes of eight, by the nibbles of the low half of a word whose top bits are clear.
__device__ __forceinline__ u32 permute(u32 low, u32 high, u32 nibbles) {
    u32 v;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(v) : "r"(low), "r"(high), "r"(nibbles));
    return v;
}

// The sum over a warp in the order of a pair tree at distances 16, 8, 4, 2, 1; every lane has it.
__device__ __forceinline__ float warp_pair_tree(float v) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) v = __fadd_rn(v, __shfl_xor_sync(0xffffffffu, v, distance));
    return v;
}

// Integer dot product of four signed bytes, added to c.
__device__ __forceinline__ int dot4(int a, int b, int c) { return __dp4a(a, b, c); }

// An integer of at most 22 bits and a sign in the mantissa of this float is read back by one subtraction.
#define EXACT_INT_BITS 0x4B400000
#define EXACT_INT 12582912.0f

// D = A * B + C on 16 x 32 and 32 x 8 signed bytes, exact.
__device__ __forceinline__ int4 mma_s8(const uint4& a, const uint2& b, const int4& c) {
    int4 d;
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
                 : "=r"(d.x), "=r"(d.y), "=r"(d.z), "=r"(d.w)
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y), "r"(c.x), "r"(c.y), "r"(c.z), "r"(c.w));
    return d;
}

// The same on 16 x 16 and 16 x 8 signed bytes.
__device__ __forceinline__ int4 mma_s8_half(u32 a0, u32 a1, u32 b, const int4& c) {
    int4 d;
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%8,%9,%10};"
        : "=r"(d.x), "=r"(d.y), "=r"(d.z), "=r"(d.w)
        : "r"(a0), "r"(a1), "r"(b), "r"(c.x), "r"(c.y), "r"(c.z), "r"(c.w));
    return d;
}

// D += A * B on 16 x 16 and 16 x 8 halves, f32 accumulation in the order of the hardware.
__device__ __forceinline__ void mma_f16(float4& d, const uint4& a, const uint2& b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d.x), "+f"(d.y), "+f"(d.z), "+f"(d.w)
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y));
}
__device__ __forceinline__ void mma_bf16(float4& d, const uint4& a, const uint2& b) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d.x), "+f"(d.y), "+f"(d.z), "+f"(d.w)
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y));
}
