// The largest of each row by one block, the lowest of equals; NaN never wins. Right: what stands behind the planted faults.
#include "memra.cuh"

extern "C" __global__ void __launch_bounds__(256) planted(const float* logits, i32* out, u32 n) {
    __shared__ float values[256];
    __shared__ u32 places[256];
    const float* row = logits + (u64)blockIdx.x * n;
    const u32 none = 0xffffffffu;
    float best = 0.0f;
    u32 place = none;
    for (u32 i = threadIdx.x; i < n; i += 256) {
        const float v = row[i];
        if (v == v && (place == none || v > best)) { best = v; place = i; }
    }
    values[threadIdx.x] = best;
    places[threadIdx.x] = place;
    __syncthreads();
    for (u32 distance = 128; distance > 0; distance /= 2) {
        if (threadIdx.x < distance) {
            const float v = values[threadIdx.x + distance];
            const u32 p = places[threadIdx.x + distance];
            const u32 own = places[threadIdx.x];
            const float w = values[threadIdx.x];
            if (p != none && (own == none || v > w || (v == w && p < own))) {
                values[threadIdx.x] = v;
                places[threadIdx.x] = p;
            }
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = places[0] == none ? 0 : (i32)places[0];
}
