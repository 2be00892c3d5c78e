// The rate of wgmma with both operands in shared memory: a group is a warpgroup that takes m64n256 products, one a step. The
// four tiles of 16 rows change places every step: four arrangements of them lie side by side.
#include "memra.cuh"

constexpr u32 ROW_BYTES = 64 * 32;      // an arrangement of the rows: 64 x 32 bytes
constexpr u32 COLUMN_BYTES = 256 * 32;  // the columns: 256 x 32 bytes
constexpr u32 OPERAND_BYTES = 4 * ROW_BYTES + COLUMN_BYTES;

#if KIND == 0
typedef float sum_type;
#define SHAPE "m64n256k16.f32.bf16.bf16"
#define TAIL "1, 1, 1, 0, 0"
#elif KIND == 1
typedef float sum_type;
#define SHAPE "m64n256k16.f32.f16.f16"
#define TAIL "1, 1, 1, 0, 0"
#elif KIND == 2
typedef float sum_type;
#define SHAPE "m64n256k32.f32.e4m3.e4m3"
#define TAIL "1, 1, 1"
#else
typedef i32 sum_type;
#define SHAPE "m64n256k32.s32.s8.s8"
#define TAIL "1"
#endif

#if KIND == 3
#define SUM "+r"
#else
#define SUM "+f"
#endif

// A matrix descriptor without swizzle, K contiguous: core matrices of 8 rows x 16 bytes, the next along K 128 bytes on, the
// next along the rows 256 bytes on.
__device__ __forceinline__ u64 descriptor(u32 address) {
    return u64((address & 0x3ffff) >> 4) | u64(128 >> 4) << 16 | u64(256 >> 4) << 32;
}

__device__ __forceinline__ void multiply(sum_type (&c)[128], u64 a, u64 b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned." SHAPE " {"
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
        "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
        "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,"
        "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"
        "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,"
        "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,"
        "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
        "}, %128, %129, " TAIL ";"
        : SUM(c[0]), SUM(c[1]), SUM(c[2]), SUM(c[3]), SUM(c[4]), SUM(c[5]), SUM(c[6]), SUM(c[7]),
          SUM(c[8]), SUM(c[9]), SUM(c[10]), SUM(c[11]), SUM(c[12]), SUM(c[13]), SUM(c[14]), SUM(c[15]),
          SUM(c[16]), SUM(c[17]), SUM(c[18]), SUM(c[19]), SUM(c[20]), SUM(c[21]), SUM(c[22]), SUM(c[23]),
          SUM(c[24]), SUM(c[25]), SUM(c[26]), SUM(c[27]), SUM(c[28]), SUM(c[29]), SUM(c[30]), SUM(c[31]),
          SUM(c[32]), SUM(c[33]), SUM(c[34]), SUM(c[35]), SUM(c[36]), SUM(c[37]), SUM(c[38]), SUM(c[39]),
          SUM(c[40]), SUM(c[41]), SUM(c[42]), SUM(c[43]), SUM(c[44]), SUM(c[45]), SUM(c[46]), SUM(c[47]),
          SUM(c[48]), SUM(c[49]), SUM(c[50]), SUM(c[51]), SUM(c[52]), SUM(c[53]), SUM(c[54]), SUM(c[55]),
          SUM(c[56]), SUM(c[57]), SUM(c[58]), SUM(c[59]), SUM(c[60]), SUM(c[61]), SUM(c[62]), SUM(c[63]),
          SUM(c[64]), SUM(c[65]), SUM(c[66]), SUM(c[67]), SUM(c[68]), SUM(c[69]), SUM(c[70]), SUM(c[71]),
          SUM(c[72]), SUM(c[73]), SUM(c[74]), SUM(c[75]), SUM(c[76]), SUM(c[77]), SUM(c[78]), SUM(c[79]),
          SUM(c[80]), SUM(c[81]), SUM(c[82]), SUM(c[83]), SUM(c[84]), SUM(c[85]), SUM(c[86]), SUM(c[87]),
          SUM(c[88]), SUM(c[89]), SUM(c[90]), SUM(c[91]), SUM(c[92]), SUM(c[93]), SUM(c[94]), SUM(c[95]),
          SUM(c[96]), SUM(c[97]), SUM(c[98]), SUM(c[99]), SUM(c[100]), SUM(c[101]), SUM(c[102]), SUM(c[103]),
          SUM(c[104]), SUM(c[105]), SUM(c[106]), SUM(c[107]), SUM(c[108]), SUM(c[109]), SUM(c[110]), SUM(c[111]),
          SUM(c[112]), SUM(c[113]), SUM(c[114]), SUM(c[115]), SUM(c[116]), SUM(c[117]), SUM(c[118]), SUM(c[119]),
          SUM(c[120]), SUM(c[121]), SUM(c[122]), SUM(c[123]), SUM(c[124]), SUM(c[125]), SUM(c[126]), SUM(c[127])
        : "l"(a), "l"(b));
}

// Sums are registers that a product still writes when its instruction is over: nothing that uses them may cross this line.
__device__ __forceinline__ void hold(sum_type (&c)[128]) {
#pragma unroll
    for (u32 i = 0; i < 128; i++) asm volatile("" : SUM(c[i])::"memory");
}

// operands: four arrangements of the rows, then the columns, in core matrices.
// out i32 [groups, 64, 8]: column c is the sum over n of (n + 1) times column 8 n + c of the group's sums.
extern "C" __global__ void __launch_bounds__(256, 1) matrix_peak_wgmma(const uint4* operands, i32* out, u32 depth) {
    __shared__ alignas(128) uint4 shared[OPERAND_BYTES / 16];
    for (u32 i = threadIdx.x; i < OPERAND_BYTES / 16; i += blockDim.x) shared[i] = operands[i];
    // What was stored is read by another proxy.
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();

    const u32 group = blockIdx.x * (blockDim.x / 128) + threadIdx.x / 128;
    const u32 base = static_cast<u32>(__cvta_generic_to_shared(shared));
    const u64 b = descriptor(base + 4 * ROW_BYTES);
    u64 a[4];
#pragma unroll
    for (u32 turn = 0; turn < 4; turn++) a[turn] = descriptor(base + (group + turn) % 4 * ROW_BYTES);

    sum_type sums[128];
#pragma unroll
    for (u32 i = 0; i < 128; i++) sums[i] = 0;
    hold(sums);
#pragma unroll 1
    for (u32 left = depth / 4; left > 0; left--) {
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (u32 turn = 0; turn < 4; turn++) multiply(sums, a[turn], b);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    }
    // What is left of four begins with the first arrangement again.
#pragma unroll 1
    for (u32 turn = 0; turn < depth % 4; turn++) {
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        multiply(sums, descriptor(base + (group + turn) % 4 * ROW_BYTES), b);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    hold(sums);

    const u32 lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane / 4;
#pragma unroll
    for (u32 r = 0; r < 4; r++) {
        i32 fold = 0;
#pragma unroll
        for (u32 n = 0; n < 32; n++) fold += i32(n + 1) * i32(sums[4 * n + r]);
        out[(group * 64 + row + r / 2 * 8) * 8 + lane % 4 * 2 + r % 2] = fold;
    }
}
