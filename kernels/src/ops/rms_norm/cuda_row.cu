// RMS norm, one block of 128 threads a row: thread t owns chain t, and the row is read twice.
#include "memra.cuh"
#include "rms_chain.cuh"

extern "C" __global__ void __launch_bounds__(128)
rms_norm_row(const float* __restrict__ x, const float* __restrict__ weight, float* out, u32 hidden, float epsilon) {
    const float* row = x + (u64)blockIdx.x * hidden;
    float* to = out + (u64)blockIdx.x * hidden;
    const float factor = rms_row_factor(row, hidden, epsilon);
    for (u32 i = threadIdx.x; i < hidden; i += CHAINS) to[i] = rms_value(row[i], factor, weight[i]);
}
