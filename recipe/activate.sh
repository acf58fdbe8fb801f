# Which CUDA architectures libtorch holds kernels for: extensions take their own list from here.
if [[ -z "${CF_TORCH_CUDA_ARCH_LIST+set}" ]]; then
    export CF_TORCH_CUDA_ARCH_LIST="@torch_cuda_arch_list@"
    # said explicitly, so that deactivation removes only what activation set
    export CF_TORCH_CUDA_ARCH_LIST_BACKUP="NOT_SET"
fi
