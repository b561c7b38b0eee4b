// Attention of single rows as a kernel of its own; see `attention.cuh`.

extern "C" __global__ void __launch_bounds__(512, 1) attention(const __grid_constant__ Attention p) {
    __shared__ AttentionShared shared;
    let_next_start();
    wait_for_previous();
    attend<16>(p, blockIdx.x, blockIdx.y, gridDim.y, blockIdx.z, shared);
}
