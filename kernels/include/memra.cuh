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

// Sixteen bytes of a weight that is read once: not kept in L1.
__device__ __forceinline__ uint4 load_weights(const void* address) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(address));
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

// C += A * B on 16 x 32 and 32 x 8 signed bytes.
__device__ __forceinline__ void mma_s8(int (&c)[4], const uint4& a, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}
