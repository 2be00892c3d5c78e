// The rate of mma.sync with all operands in registers. A group is four warps; warp q of it holds columns 64 q to 64 q + 63 of
// the group's 64 x 256 sums, and takes 32 independent products a step. The four tiles of 16 rows change places every step, so
// that no operand stands still.
#include "memra.cuh"

constexpr u32 WARPS_OF_GROUP = 4;
constexpr u32 TILES = 4;    // of 16 rows
constexpr u32 COLUMNS = 8;  // of 8 columns, of a warp

#if KIND == 0
typedef float sum_type;
#define SHAPE "m16n8k16.row.col.f32.bf16.bf16.f32"
#elif KIND == 1
typedef float sum_type;
#define SHAPE "m16n8k16.row.col.f32.f16.f16.f32"
#elif KIND == 2
typedef float sum_type;
#define SHAPE "m16n8k32.row.col.f32.e4m3.e4m3.f32"
#else
typedef i32 sum_type;
#define SHAPE "m16n8k32.row.col.s32.s8.s8.s32"
#endif

#if KIND == 3
#define SUM "+r"
#else
#define SUM "+f"
#endif

__device__ __forceinline__ void multiply(sum_type (&c)[4], const uint4& a, const uint2& b) {
    asm volatile("mma.sync.aligned." SHAPE " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : SUM(c[0]), SUM(c[1]), SUM(c[2]), SUM(c[3])
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b.x), "r"(b.y));
}

typedef sum_type Sums[TILES][COLUMNS][4];

// One step: row tile i takes the tile of number i + TURN.
template <u32 TURN>
__device__ __forceinline__ void step(Sums& sums, const uint4 (&a)[TILES], const uint2 (&b)[COLUMNS]) {
#pragma unroll
    for (u32 j = 0; j < COLUMNS; j++) {
#pragma unroll
        for (u32 i = 0; i < TILES; i++) multiply(sums[i][j], a[(i + TURN) % TILES], b[j]);
    }
}

// operands: fragments of the four row tiles, 16 bytes a lane, then of the 32 column tiles, 8 bytes a lane.
// out i32 [groups, 64, 8]: column c is the sum over n of (n + 1) times column 8 n + c of the group's sums.
extern "C" __global__ void __launch_bounds__(256, 1) matrix_peak_mma(const u8* operands, i32* out, u32 depth) {
    __shared__ i32 folded[2][64][8];
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, part = warp % WARPS_OF_GROUP;
    const u32 group_of_block = warp / WARPS_OF_GROUP, groups_of_block = blockDim.x / 128;
    const u32 group = blockIdx.x * groups_of_block + group_of_block;
    for (u32 i = threadIdx.x; i < groups_of_block * 512; i += blockDim.x) folded[i / 512][i % 512 / 8][i % 8] = 0;

    uint4 a[TILES];
    uint2 b[COLUMNS];
#pragma unroll
    for (u32 i = 0; i < TILES; i++) {
        a[i] = *reinterpret_cast<const uint4*>(operands + ((i + group) % TILES * 32 + lane) * 16);
    }
#pragma unroll
    for (u32 j = 0; j < COLUMNS; j++) {
        b[j] = *reinterpret_cast<const uint2*>(operands + TILES * 512 + ((part * COLUMNS + j) * 32 + lane) * 8);
    }
    Sums sums = {};
    u32 left = depth;
#pragma unroll 1
    for (; left >= 4; left -= 4) {
        step<0>(sums, a, b);
        step<1>(sums, a, b);
        step<2>(sums, a, b);
        step<3>(sums, a, b);
    }
    if (left > 0) step<0>(sums, a, b);
    if (left > 1) step<1>(sums, a, b);
    if (left > 2) step<2>(sums, a, b);

    __syncthreads();
#pragma unroll
    for (u32 i = 0; i < TILES; i++) {
#pragma unroll
        for (u32 r = 0; r < 4; r++) {
            i32 fold = 0;
#pragma unroll
            for (u32 j = 0; j < COLUMNS; j++) fold += i32(part * COLUMNS + j + 1) * i32(sums[i][j][r]);
            atomicAdd(&folded[group_of_block][i * 16 + lane / 4 + r / 2 * 8][lane % 4 * 2 + r % 2], fold);
        }
    }
    __syncthreads();
    i32* mine = out + blockIdx.x * groups_of_block * 512;
    for (u32 i = threadIdx.x; i < groups_of_block * 512; i += blockDim.x) mine[i] = folded[i / 512][i % 512 / 8][i % 8];
}
