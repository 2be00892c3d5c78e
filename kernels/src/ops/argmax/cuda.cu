// Index of the largest of a row, the lowest of equals. A value and its index make one 64-bit key: the larger key wins, so
// the order in which candidates meet does not show.
#include "memra.cuh"

// Rises with the value; -0 is +0, and NaN is zero, below every value.
__device__ __forceinline__ u32 rank_of(float value) {
    const u32 bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0u;
    if (bits == 0x80000000u) return 0x80000000u;
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

// The best of what a thread sees in rising order of indices.
struct Best {
    u32 rank;
    u32 index;
};

__device__ __forceinline__ void take(Best& best, float value, u32 index) {
    const u32 rank = rank_of(value);
    if (rank > best.rank) best = {rank, index};
}

__device__ __forceinline__ u64 key_of(const Best& best) {
    return best.rank == 0 ? 0 : (u64)best.rank << 32 | (u32)~best.index;
}

// A row without a number gives zero.
__device__ __forceinline__ u32 index_of(u64 key) { return key == 0 ? 0u : ~(u32)key; }

// The largest key of a block of whole warps; thread 0 has it.
__device__ __forceinline__ u64 block_largest(u64 key) {
    __shared__ u64 of_warps[32];
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        const u64 other = __shfl_xor_sync(0xffffffffu, key, distance);
        key = other > key ? other : key;
    }
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = key;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (u32 warp = 1; warp < blockDim.x / 32; ++warp) key = of_warps[warp] > key ? of_warps[warp] : key;
    }
    return key;
}

// One block of threads a row.
extern "C" __global__ void __launch_bounds__(1024)
argmax_row(const float* __restrict__ logits, u32* out, u32 n) {
    const float* row = logits + (u64)blockIdx.x * n;
    Best best = {0, 0};
#pragma unroll 4
    for (u32 i = threadIdx.x; i < n; i += blockDim.x) take(best, __ldg(row + i), i);
    const u64 key = block_largest(key_of(best));
    if (threadIdx.x == 0) out[blockIdx.x] = index_of(key);
}

#ifdef PIECE
// Elements of a piece that a thread takes at a time: 256 threads, four each.
constexpr u32 STEP = 1024;

// Row blockIdx.y in pieces of PIECE; the block that ends last writes the row's index and puts key and count back to zero for
// the next launch.
extern "C" __global__ void __launch_bounds__(256)
argmax_pieces(const float* __restrict__ logits, u32* out, u64* keys, u32* counts, u32 n) {
    const float* row = logits + (u64)blockIdx.y * n;
    const u32 start = blockIdx.x * PIECE;
    const u32 end = min(n, start + PIECE);
    Best best = {0, 0};
    if (n % 4 == 0) {
        float4 v[PIECE / STEP];
#pragma unroll
        for (u32 i = 0; i < PIECE / STEP; ++i) {
            const u32 at = start + i * STEP + threadIdx.x * 4;
            const float nan = __uint_as_float(0x7fc00000u);
            v[i] = at < end ? __ldg(reinterpret_cast<const float4*>(row + at)) : make_float4(nan, nan, nan, nan);
        }
#pragma unroll
        for (u32 i = 0; i < PIECE / STEP; ++i) {
            const u32 at = start + i * STEP + threadIdx.x * 4;
            take(best, v[i].x, at);
            take(best, v[i].y, at + 1);
            take(best, v[i].z, at + 2);
            take(best, v[i].w, at + 3);
        }
    } else {
        for (u32 i = start + threadIdx.x; i < end; i += 256) take(best, __ldg(row + i), i);
    }
    const u64 key = block_largest(key_of(best));
    if (threadIdx.x != 0) return;
    if (key != 0) atomicMax(keys + blockIdx.y, key);
    __threadfence();
    // The count goes back to zero with the last block.
    if (atomicInc(counts + blockIdx.y, gridDim.x - 1) != gridDim.x - 1) return;
    __threadfence();
    out[blockIdx.y] = index_of(atomicExch(keys + blockIdx.y, 0ull));
}
#endif
