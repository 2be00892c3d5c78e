// Planted fault: the partial results of 256 threads are read without waiting for them, and half of the warps are late by
// what the clock happens to say. Runs differ.
#include "memra.cuh"

extern "C" __global__ void __launch_bounds__(256) planted(const float* logits, i32* out, u32 n) {
    __shared__ float values[256];
    __shared__ u32 places[256];
    const float* row = logits + (u64)blockIdx.x * n;
    const u32 none = 0xffffffffu;
    volatile float* shared_values = values;
    volatile u32* shared_places = places;
    shared_values[threadIdx.x] = 0.0f;
    shared_places[threadIdx.x] = none;
    float best = 0.0f;
    u32 place = none;
    for (u32 i = threadIdx.x; i < n; i += 256) {
        const float v = row[i];
        if (v == v && (place == none || v > best)) { best = v; place = i; }
    }
    const long long start = clock64();
    const long long late = (threadIdx.x / 32 % 2) * (start >> 3 & 4095);
    while (clock64() - start < late) {
    }
    shared_values[threadIdx.x] = best;
    shared_places[threadIdx.x] = place;
    // No __syncthreads().
    if (threadIdx.x == 0) {
        best = 0.0f;
        place = none;
        for (u32 t = 0; t < 256; ++t) {
            const float v = shared_values[t];
            const u32 p = shared_places[t];
            if (p != none && (place == none || v > best || (v == best && p < place))) { best = v; place = p; }
        }
        // What was seen in time decides, down to the last bit of the clock: a right answer by luck does not stay.
        out[blockIdx.x] = (place == none ? 0 : (i32)place) + (i32)(start >> 3 & 1);
    }
}
