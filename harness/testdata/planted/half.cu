// Planted fault: rows of the second half are left as they are.
#include "memra.cuh"

extern "C" __global__ void __launch_bounds__(256) planted(const float* logits, i32* out, u32 n) {
    if (blockIdx.x >= (gridDim.x + 1) / 2 || threadIdx.x != 0) return;
    const float* row = logits + (u64)blockIdx.x * n;
    const u32 none = 0xffffffffu;
    float best = 0.0f;
    u32 place = none;
    for (u32 i = 0; i < n; ++i) {
        const float v = row[i];
        if (v == v && (place == none || v > best)) { best = v; place = i; }
    }
    out[blockIdx.x] = place == none ? 0 : (i32)place;
}
