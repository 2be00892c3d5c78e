// Products over weights as they are stored, in the order classes of the host: the CUDA baseline of every format.
//
// Quantised formats: eight lanes a weight row, lane c owns chain c, the blocks of 32 with index c, c + 8, ... Float formats: a warp a
// weight row, lane c owns chain c, the elements c, c + 32, ...
//
// FORMAT_* is defined by the variant.
#include "memra.cuh"
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

__device__ __forceinline__ float half_of(const u8* p) { return __half2float(__ushort_as_half((u16)(p[0] | p[1] << 8))); }

#if defined(FORMAT_F32) || defined(FORMAT_F16) || defined(FORMAT_BF16) || defined(FORMAT_F8)

__device__ __forceinline__ float weight(const u8* row, int i) {
#if defined(FORMAT_F32)
    return ((const float*)row)[i];
#elif defined(FORMAT_F16)
    return __half2float(((const __half*)row)[i]);
#elif defined(FORMAT_BF16)
    return __bfloat162float(((const __nv_bfloat16*)row)[i]);
#else
    return __half2float(__half(__nv_cvt_fp8_to_halfraw(row[i], __NV_E4M3)));
#endif
}

// type: 0 f32, 1 f16, 2 bf16.
__device__ __forceinline__ float element(const void* x, size_t i, int type) {
    if (type == 0) return ((const float*)x)[i];
    return type == 1 ? __half2float(((const __half*)x)[i]) : __bfloat162float(((const __nv_bfloat16*)x)[i]);
}

extern "C" __global__ void __launch_bounds__(256) product_stored(const u8* weights, const float* outer, const void* x, int type,
                                                                 const float* residual, float* out, int m, int k, int n,
                                                                 int column, int width) {
    const int lane = threadIdx.x % 32, row = blockIdx.x * 8 + threadIdx.x / 32;
    if (row >= n) return;
#if defined(FORMAT_F8)
    const int blocks = (k + 127) / 128;
    const float* scales = outer + (size_t)(row / 128) * blocks;
    const size_t row_bytes = k;
#elif defined(FORMAT_F32)
    const size_t row_bytes = 4 * (size_t)k;
#else
    const size_t row_bytes = 2 * (size_t)k;
#endif
    const u8* w = weights + row * row_bytes;
    for (int c = blockIdx.y; c < m; c += gridDim.y) {
        const size_t start = (size_t)c * k;
        float chain = 0.0f;
#if defined(FORMAT_F8)
        for (int b = 0; b < blocks; b++) {
            float part = 0.0f;
            const int end = min(k, 128 * b + 128);
            for (int i = 128 * b + lane; i < end; i += 32) part = __fmaf_rn(weight(w, i), element(x, start + i, type), part);
            chain = __fmaf_rn(part, scales[b], chain);
        }
#else
        for (int i = lane; i < k; i += 32) chain = __fmaf_rn(weight(w, i), element(x, start + i, type), chain);
#endif
        float sum = warp_pair_tree(chain);
        const size_t at = (size_t)c * width + column + row;
        if (residual) sum = __fadd_rn(sum, residual[at]);
        if (lane == 0) out[at] = sum;
    }
}

#else

#if defined(FORMAT_Q4_1) || defined(FORMAT_Q5_1) || defined(FORMAT_Q4_K) || defined(FORMAT_Q5_K)
#define HAS_MINIMUM
#endif

struct Block {
    i8 q[32];
    float scale;    // of the block; of its first half for formats with halves
    float minimum;  // of the block
    float second;   // nvfp4: of its second half
    int sub0, sub1; // q6_k
};

__device__ __forceinline__ int nibble(const u8* quants, int i) { return i < 16 ? quants[i] & 15 : quants[i - 16] >> 4; }

// Half of an unsigned e4m3; the code of not-a-number stands for zero.
__device__ __forceinline__ float micro_scale(int byte) {
    return byte == 0x7F ? 0.0f : __half2float(__ushort_as_half((u16)((byte & 0x7F) << 7))) * 128.0f;
}

__device__ __forceinline__ void read(const u8* row, int b, Block& r) {
#if defined(FORMAT_Q8_0)
    const u8* p = row + (size_t)b * 34;
    r.scale = half_of(p);
#pragma unroll
    for (int i = 0; i < 32; i++) r.q[i] = (i8)p[2 + i];
#elif defined(FORMAT_Q4_0)
    const u8* p = row + (size_t)b * 18;
    r.scale = half_of(p);
#pragma unroll
    for (int i = 0; i < 32; i++) r.q[i] = (i8)(nibble(p + 2, i) - 8);
#elif defined(FORMAT_Q4_1)
    const u8* p = row + (size_t)b * 20;
    r.scale = half_of(p), r.minimum = half_of(p + 2);
#pragma unroll
    for (int i = 0; i < 32; i++) r.q[i] = (i8)nibble(p + 4, i);
#elif defined(FORMAT_Q5_0) || defined(FORMAT_Q5_1)
#if defined(FORMAT_Q5_0)
    const u8* p = row + (size_t)b * 22;
    const u8* h = p + 2;
    const int offset = 16;
#else
    const u8* p = row + (size_t)b * 24;
    const u8* h = p + 4;
    r.minimum = half_of(p + 2);
    const int offset = 0;
#endif
    r.scale = half_of(p);
    const u32 high = h[0] | h[1] << 8 | h[2] << 16 | (u32)h[3] << 24;
#pragma unroll
    for (int i = 0; i < 32; i++) r.q[i] = (i8)((nibble(h + 4, i) | (high >> i & 1) << 4) - offset);
#elif defined(FORMAT_Q4_K) || defined(FORMAT_Q5_K)
    const int s = b % 8;
#if defined(FORMAT_Q4_K)
    const u8* p = row + (size_t)(b / 8) * 144;
    const u8* quants = p + 16 + s / 2 * 32;
#else
    const u8* p = row + (size_t)(b / 8) * 176;
    const u8* quants = p + 48 + s / 2 * 32;
#endif
    const u8* packed = p + 4;
    const int sc = s < 4 ? packed[s] & 63 : (packed[s + 4] & 15) | packed[s - 4] >> 6 << 4;
    const int mn = s < 4 ? packed[s + 4] & 63 : packed[s + 4] >> 4 | packed[s] >> 6 << 4;
    r.scale = half_of(p) * (float)sc;
    r.minimum = -(half_of(p + 2) * (float)mn);
#pragma unroll
    for (int i = 0; i < 32; i++) {
        int q = s % 2 ? quants[i] >> 4 : quants[i] & 15;
#if defined(FORMAT_Q5_K)
        q |= (p[16 + i] >> s & 1) << 4;
#endif
        r.q[i] = (i8)q;
    }
#elif defined(FORMAT_Q6_K)
    const u8* p = row + (size_t)(b / 8) * 210;
    const int s = b % 8, h = s / 4, part = s % 4;
    r.scale = half_of(p + 208);
    r.sub0 = (i8)p[192 + 2 * s], r.sub1 = (i8)p[193 + 2 * s];
#pragma unroll
    for (int i = 0; i < 32; i++) {
        const int low = p[64 * h + i + 32 * (part % 2)];
        r.q[i] = (i8)(((part < 2 ? low & 15 : low >> 4) | (p[128 + 32 * h + i] >> (2 * part) & 3) << 4) - 32);
    }
#elif defined(FORMAT_IQ4_XS)
    const u8* p = row + (size_t)(b / 8) * 136;
    const int s = b % 8;
    const int ls = (p[4 + s / 2] >> (4 * (s % 2)) & 15) | ((p[2] | p[3] << 8) >> (2 * s) & 3) << 4;
    r.scale = half_of(p) * (float)(ls - 32);
    const i8 values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
#pragma unroll
    for (int i = 0; i < 32; i++) r.q[i] = values[nibble(p + 8 + 16 * s, i)];
#else
    const u8* p = row + (size_t)(b / 2) * 36;
    const int first = b % 2 * 2;
    const i8 doubled[8] = {0, 1, 2, 3, 4, 6, 8, 12};
    r.scale = micro_scale(p[first]);
    r.second = micro_scale(p[first + 1]);
#pragma unroll
    for (int i = 0; i < 32; i++) {
        const int byte = p[4 + 8 * (first + i / 16) + i % 8], code = i % 16 < 8 ? byte & 15 : byte >> 4;
        r.q[i] = code & 8 ? (i8)-doubled[code & 7] : doubled[code & 7];
    }
#endif
}

__device__ __forceinline__ size_t row_bytes(int k) {
#if defined(FORMAT_Q8_0)
    return (size_t)k / 32 * 34;
#elif defined(FORMAT_Q4_0)
    return (size_t)k / 32 * 18;
#elif defined(FORMAT_Q4_1)
    return (size_t)k / 32 * 20;
#elif defined(FORMAT_Q5_0)
    return (size_t)k / 32 * 22;
#elif defined(FORMAT_Q5_1)
    return (size_t)k / 32 * 24;
#elif defined(FORMAT_Q4_K)
    return (size_t)k / 256 * 144;
#elif defined(FORMAT_Q5_K)
    return (size_t)k / 256 * 176;
#elif defined(FORMAT_Q6_K)
    return (size_t)k / 256 * 210;
#elif defined(FORMAT_IQ4_XS)
    return (size_t)k / 256 * 136;
#else
    return (size_t)k / 64 * 36;
#endif
}

extern "C" __global__ void __launch_bounds__(256) product_stored(const u8* weights, const float* outer, const i8* x,
                                                                 const float* x_scales, const float* residual, float* out,
                                                                 int m, int k, int n, int column, int width) {
    const int c = threadIdx.x % 8, row = blockIdx.x * 32 + threadIdx.x / 8, blocks = k / 32;
    const u8* w = weights + (size_t)min(row, n - 1) * row_bytes(k);
    for (int r = blockIdx.y; r < m; r += gridDim.y) {
        const i8* quants = x + (size_t)r * k;
        const float* scales = x_scales + (size_t)r * blocks;
        float chain = 0.0f;
        for (int b = c; b < blocks; b += 8) {
            Block block;
            read(w, b, block);
            int low = 0, high = 0, sum = 0;
#pragma unroll
            for (int i = 0; i < 16; i++) {
                const int v = quants[32 * b + i], u = quants[32 * b + 16 + i];
                low += block.q[i] * v;
                high += block.q[16 + i] * u;
                sum += v + u;
            }
            const float scale = scales[b];
#if defined(FORMAT_Q6_K)
            chain = __fmaf_rn((float)(block.sub0 * low + block.sub1 * high), block.scale * scale, chain);
#elif defined(FORMAT_NVFP4)
            chain = __fmaf_rn(__fmaf_rn((float)high, block.second, (float)low * block.scale), scale, chain);
#else
            chain = __fmaf_rn((float)(low + high), block.scale * scale, chain);
#if defined(HAS_MINIMUM)
            chain = __fmaf_rn(block.minimum, (float)sum * scale, chain);
#endif
#endif
        }
#pragma unroll
        for (int distance = 4; distance > 0; distance /= 2)
            chain = __fadd_rn(chain, __shfl_xor_sync(0xffffffffu, chain, distance));
        if (c == 0 && row < n) {
#if defined(FORMAT_NVFP4)
            chain = chain * outer[0];
#endif
            const size_t at = (size_t)r * width + column + row;
            out[at] = residual ? __fadd_rn(chain, residual[at]) : chain;
        }
    }
}
#endif
