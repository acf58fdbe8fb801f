#pragma once

#include <ATen/ATen.h>
#include <torch/version.h>

namespace torch {

using namespace at;  // NOLINT: torch:: and at:: are the same to users

}  // namespace torch
