// Memory streams in sixteen-byte vectors. FLIGHT vectors a thread are asked for before the first is used.
// A block owns the chunks (16 KiB) c with c mod gridDim.x == blockIdx.x; a row is what the block's 256 threads take at once,
// 4 KiB, a quarter of a chunk.
#include "memra.cuh"

// No loop over flights is unrolled: the loads of one flight would mix with those of the next.

constexpr u32 THREADS = 256;
constexpr u32 ROWS = 4;

// Rows of this block, and the vector a thread takes of one of them.
__device__ __forceinline__ u32 rows_of_block(u32 chunks) {
    return blockIdx.x < chunks ? ((chunks - blockIdx.x - 1) / gridDim.x + 1) * ROWS : 0;
}
__device__ __forceinline__ u32 vector_of_row(u32 row) {
    const u32 chunk = blockIdx.x + row / ROWS * gridDim.x;
    return (chunk * ROWS + row % ROWS) * THREADS + threadIdx.x;
}

template <u32 N>
__device__ __forceinline__ void load(uint4 (&v)[N], const uint4* in, u32 row) {
#pragma unroll
    for (u32 j = 0; j < N; j++) v[j] = load_weights(in + vector_of_row(row + j));
}

template <u32 N>
__device__ __forceinline__ void add(const uint4 (&v)[N], u32& sum, u32& mix) {
#pragma unroll
    for (u32 j = 0; j < N; j++) {
        sum += v[j].x + v[j].y + v[j].z + v[j].w;
        mix ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
    }
}

template <u32 N>
__device__ __forceinline__ void store(const uint4 (&v)[N], uint4* out, u32 row) {
#pragma unroll
    for (u32 j = 0; j < N; j++) out[vector_of_row(row + j)] = v[j];
}

template <u32 N>
__device__ __forceinline__ void fill(uint4* out, u32 row, u32 seed) {
    uint4 v[N];
#pragma unroll
    for (u32 j = 0; j < N; j++) {
        const u32 hash = (vector_of_row(row + j) + seed) * 0x9E3779B1u;
        v[j] = make_uint4(hash, hash ^ 0xA511E9B3u, hash ^ 0x5BD1E995u, hash ^ 0xC2B2AE35u);
    }
    store(v, out, row);
}

// Sum and exclusive or of each part: out u32 [gridDim.x, 2].
extern "C" __global__ void __launch_bounds__(THREADS, 1) stream_read(const uint4* in, u32* out, u32 chunks) {
    const u32 rows = rows_of_block(chunks);
    u32 sum = 0, mix = 0, row = 0;
#pragma unroll 1
    for (; row + FLIGHT <= rows; row += FLIGHT) {
        uint4 v[FLIGHT];
        load(v, in, row);
        add(v, sum, mix);
    }
    // What is no whole flight is whole chunks.
#pragma unroll 1
    for (; FLIGHT > ROWS && row < rows; row += ROWS) {
        uint4 v[ROWS];
        load(v, in, row);
        add(v, sum, mix);
    }
    __shared__ u32 parts[2][THREADS / 32];
    sum = __reduce_add_sync(0xffffffffu, sum);
    mix = __reduce_xor_sync(0xffffffffu, mix);
    if (threadIdx.x % 32 == 0) {
        parts[0][threadIdx.x / 32] = sum;
        parts[1][threadIdx.x / 32] = mix;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (u32 warp = 1; warp < THREADS / 32; warp++) {
            sum += parts[0][warp];
            mix ^= parts[1][warp];
        }
        *reinterpret_cast<uint2*>(out + 2 * blockIdx.x) = make_uint2(sum, mix);
    }
}

// The pattern of every vector.
extern "C" __global__ void __launch_bounds__(THREADS, 1) stream_write(uint4* out, u32 chunks, u32 seed) {
    const u32 rows = rows_of_block(chunks);
    u32 row = 0;
#pragma unroll 1
    for (; row + FLIGHT <= rows; row += FLIGHT) fill<FLIGHT>(out, row, seed);
#pragma unroll 1
    for (; FLIGHT > ROWS && row < rows; row += ROWS) fill<ROWS>(out, row, seed);
}

// out = in.
extern "C" __global__ void __launch_bounds__(THREADS, 1) stream_copy(const uint4* in, uint4* out, u32 chunks) {
    const u32 rows = rows_of_block(chunks);
    u32 row = 0;
#pragma unroll 1
    for (; row + FLIGHT <= rows; row += FLIGHT) {
        uint4 v[FLIGHT];
        load(v, in, row);
        store(v, out, row);
    }
#pragma unroll 1
    for (; FLIGHT > ROWS && row < rows; row += ROWS) {
        uint4 v[ROWS];
        load(v, in, row);
        store(v, out, row);
    }
}
