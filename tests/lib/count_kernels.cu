// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// count_kernels.c for a GPU.

#include <cstdint>

extern "C" __global__ void count_up(uint32_t *word, uint32_t by)
{
	atomicAdd(word, by);
}
