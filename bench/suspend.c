// A program that is suspended and resumed, or saved and restored, from outside: allocates device
// memory, answers each line of its input with a copy from it, and checks all of it at the end.
//
// FRMPS_BENCH_MIB: amount of memory (16384), in pieces of FRMPS_BENCH_PIECE_MIB (1024). Prints
// {"name": "answer"} for each line, {"name": "suspended", "mib": …} on success, and exits with 1
// otherwise.

#include <stdio.h>
#include <stdlib.h>

#include "bench/lib/driver.h"

#define MIB UINT64_C(1048576)

static uint32_t pattern_of(uint32_t piece)
{
	return 0x5eed0000u + piece;
}

static CUdeviceptr make_piece(uint32_t piece, uint64_t bytes)
{
	CUdeviceptr at;

	driver_check(cu.alloc(&at, bytes), "cuMemAlloc");
	driver_check(cu.set32(at, pattern_of(piece), bytes / 4), "cuMemsetD32");
	return at;
}

static void check_piece(uint32_t piece, CUdeviceptr at, uint64_t bytes, uint32_t *words)
{
	for (uint64_t offset = 0; offset < bytes; offset += MIB) {
		driver_check(cu.dtoh(words, at + offset, MIB), "cuMemcpyDtoH");
		for (uint64_t i = 0; i < MIB / 4; i++) {
			if (words[i] == pattern_of(piece))
				continue;
			fprintf(stderr, "suspend: memory is not what was written there\n");
			exit(1);
		}
	}
}

int main(void)
{
	uint64_t piece = (uint64_t)driver_environment("FRMPS_BENCH_PIECE_MIB", 1024) * MIB;
	uint32_t count = (uint32_t)((uint64_t)driver_environment("FRMPS_BENCH_MIB", 16384) * MIB / piece);
	CUdeviceptr *pieces = calloc(count, sizeof(*pieces));
	uint32_t *words;

	driver_open();
	driver_check(cu.host_alloc((void **)&words, MIB, 0), "cuMemHostAlloc");
	for (uint32_t i = 0; i < count; i++)
		pieces[i] = make_piece(i, piece);
	driver_check(cu.sync(), "cuCtxSynchronize");
	driver_wait_for_start();
	for (int c = getchar(); c != EOF; c = getchar()) {
		if (c != '\n')
			continue;
		driver_check(cu.dtoh(words, pieces[0], MIB), "cuMemcpyDtoH");
		puts("{\"name\": \"answer\"}");
		fflush(stdout);
	}
	for (uint32_t i = 0; i < count; i++)
		check_piece(i, pieces[i], piece, words);
	free(pieces);
	printf("{\"name\": \"suspended\", \"mib\": %llu}\n", (unsigned long long)(count * piece / MIB));
	return 0;
}
