// Nothing but a launch: one thread of all writes the word.
#include "memra.cuh"

extern "C" __global__ void __launch_bounds__(128) empty(u32* out, u32 word) {
#if OVERLAPPED
    // The next launch may begin at once, and this one waits for the end of the one before it.
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    if (blockIdx.x == 0 && threadIdx.x == 0) *out = word;
}
