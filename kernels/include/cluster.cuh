// Blocks of a cluster: sm_90 and up.
#pragma once
#include "memra.cuh"

#if CLUSTER
__device__ __forceinline__ void cluster_wait() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ u32 cluster_rank() {
    u32 rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
// A float in the shared memory of another block of the cluster.
__device__ __forceinline__ float of_rank(const float* own, u32 rank) {
    u32 address = (u32)__cvta_generic_to_shared(own), there;
    float v;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(there) : "memory");
    return v;
}
#endif
