// Queries and keys are turned, keys and values go to their pages as f16: a thread a pair of dimensions of a head.
#include <cuda_fp16.h>
#include "memra.cuh"

// Positions of a page.
constexpr u32 PAGE = 64;

// Sizes of a launch. A row holds `heads` heads of query, then `kv_heads` of key, then as many of value.
struct Sizes {
    u32 heads, kv_heads, head_dim, n_rot, depth, rows, sequence_pages, is_halves;
};

// Where a row's position lies in the cache: element of the first head of its page, and place in the page.
struct Place {
    u64 page;
    u32 offset;
};

__device__ __forceinline__ Place place_of(const Sizes& s, const u32* page_table, u32 row) {
    const u32 position = s.depth + row % s.rows;
    const u32 page = page_table[row / s.rows * s.sequence_pages + position / PAGE];
    return {(u64)page * s.kv_heads * s.head_dim * PAGE, position % PAGE};
}

// A page of keys is [kv_heads][head_dim][PAGE], one of values [kv_heads][PAGE][head_dim].
__device__ __forceinline__ u64 key_index(const Sizes& s, const Place& place, u32 head, u32 d) {
    return place.page + ((u64)head * s.head_dim + d) * PAGE + place.offset;
}

__device__ __forceinline__ u64 value_index(const Sizes& s, const Place& place, u32 head, u32 d) {
    return place.page + ((u64)head * PAGE + place.offset) * s.head_dim + d;
}

__device__ __forceinline__ u16 half_bits(float v) { return __half_as_ushort(__float2half_rn(v)); }

// Row blockIdx.y. Thread t of a row takes pair t mod (head_dim / 2) of head t / (head_dim / 2).
extern "C" __global__ void __launch_bounds__(128)
rope_append_pairs(const float* __restrict__ qkv, const float* __restrict__ table, const u32* __restrict__ page_table,
                  float* q, u16* keys, u16* values, const Sizes* __restrict__ sizes) {
    const Sizes s = *sizes;
    const u32 half_dim = s.head_dim / 2;
    const u32 all_heads = s.heads + 2 * s.kv_heads;
    const u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
    if (thread >= all_heads * half_dim) return;
    const u32 row = blockIdx.y;
    const u32 head = thread / half_dim;
    const u32 pair = thread % half_dim;
    const u32 pairs = s.n_rot / 2;
    // Pairs past the turned ones are neighbours.
    const bool is_apart = s.is_halves != 0 && pair < pairs;
    const u32 d0 = is_apart ? pair : 2 * pair;
    const u32 d1 = is_apart ? pair + pairs : 2 * pair + 1;
    const float* from = qkv + ((u64)row * all_heads + head) * s.head_dim;
    float x0 = __ldg(from + d0);
    float x1 = __ldg(from + d1);
    if (head < s.heads + s.kv_heads && pair < pairs) {
        const float cosine = __ldg(table + (u64)row * s.n_rot + pair);
        const float sine = __ldg(table + (u64)row * s.n_rot + pairs + pair);
        const float y0 = __fmaf_rn(x0, cosine, -__fmul_rn(x1, sine));
        const float y1 = __fmaf_rn(x1, cosine, __fmul_rn(x0, sine));
        x0 = y0;
        x1 = y1;
    }
    if (head < s.heads) {
        float* to = q + ((u64)row * s.heads + head) * s.head_dim;
        to[d0] = x0;
        to[d1] = x1;
        return;
    }
    const Place place = place_of(s, page_table, row);
    if (head < s.heads + s.kv_heads) {
        keys[key_index(s, place, head - s.heads, d0)] = half_bits(x0);
        keys[key_index(s, place, head - s.heads, d1)] = half_bits(x1);
    } else {
        values[value_index(s, place, head - s.heads - s.kv_heads, d0)] = half_bits(x0);
        values[value_index(s, place, head - s.heads - s.kv_heads, d1)] = half_bits(x1);
    }
}

// Keys and values of the appended rows out of their pages, row by row: what a check compares.
extern "C" __global__ void __launch_bounds__(128)
rope_append_read(const u32* __restrict__ page_table, const u16* keys, const u16* values, u16* k, u16* v,
                 const Sizes* __restrict__ sizes) {
    const Sizes s = *sizes;
    const u32 element = blockIdx.x * blockDim.x + threadIdx.x;
    if (element >= s.kv_heads * s.head_dim) return;
    const u32 row = blockIdx.y;
    const Place place = place_of(s, page_table, row);
    const u32 head = element / s.head_dim;
    const u32 d = element % s.head_dim;
    const u64 to = (u64)row * s.kv_heads * s.head_dim + element;
    k[to] = keys[key_index(s, place, head, d)];
    v[to] = values[value_index(s, place, head, d)];
}
