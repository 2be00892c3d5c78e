// Planted fault: writes where there is no memory.
#include "memra.cuh"

extern "C" __global__ void __launch_bounds__(256) planted(const float* logits, i32* out, u32 n) {
    volatile i32* nowhere = (volatile i32*)(u64)64;
    if (threadIdx.x == 0) {
        nowhere[blockIdx.x] = (i32)n;
        out[blockIdx.x] = logits[0] > 0.0f ? 1 : 0;
    }
}
