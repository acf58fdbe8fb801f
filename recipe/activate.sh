# The CUDA architectures that libtorch has kernels for; builds of extensions read this list.
if [[ -z "${CF_TORCH_CUDA_ARCH_LIST+set}" ]]; then
    export CF_TORCH_CUDA_ARCH_LIST="@torch_cuda_arch_list@"
    # tells the deactivation script that it may remove the list: this script set it
    export CF_TORCH_CUDA_ARCH_LIST_BACKUP="NOT_SET"
fi
