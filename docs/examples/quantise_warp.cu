// Activation quantisation, a lane an element: the smallest file that is an arm.
//
// ---
// schema = "memra-arm/1"
// contract = "quantise"
// entry = "quantise_warp"
// order_class = "quantise_block32"
// archs = ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a", "sm_120a"]
// layout = "stored"
// rows = [1, 4096]
//
// [launch]
// block = [256]
// grid = ["min(cdiv(m * k / 32, 8), sms * 16)"]
// args = ["x", "quants", "scales", "sums", "u32:m * k / 32"]
// ---
#include "memra.cuh"

// A warp a block of 32 elements, and then one further on by as many warps as there are.
extern "C" __global__ void __launch_bounds__(256) quantise_warp(const float* x, i8* quants, float* scales, i16* sums,
                                                                u32 blocks) {
    const u32 lane = threadIdx.x % 32, warps = gridDim.x * 8;
    for (u32 b = blockIdx.x * 8 + threadIdx.x / 32; b < blocks; b += warps) {
        const float v = x[(size_t)b * 32 + lane];
        float maximum = fabsf(v);
        for (int distance = 16; distance > 0; distance /= 2)
            maximum = fmaxf(maximum, __shfl_xor_sync(0xffffffffu, maximum, distance));
        const bool is_zero = maximum < 0x1p-120f;
        const int q = is_zero ? 0 : __float2int_rn(__fmul_rn(v, __fdiv_rn(127.0f, maximum)));
        int sum = q;
        for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
        quants[(size_t)b * 32 + lane] = (i8)q;
        if (lane == 0) {
            scales[b] = is_zero ? 0.0f : __fdiv_rn(maximum, 127.0f);
            sums[b] = (i16)sum;
        }
    }
}
