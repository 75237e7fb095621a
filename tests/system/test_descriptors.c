// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// What a program can do with descriptors: those that the service gave it. Every test starts a service of its own; the
// client speaks the protocol by hand.

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "tests/lib/service.h"
#include "tests/lib/suite.h"
#include "tests/system/program.h"
#include "tests/system/raw.h"

#define MIB    (UINT64_C(1) << 20)
#define PIECES 4u
#define PIECE  (16 * MIB)

static struct service service;
static struct raw_session session;

static void start_limited(void)
{
	ck_assert(service_start_configured(&service, "pinned_limit = 64M\n"));
	raw_open(&service, &session);
}

static void stop(void)
{
	raw_close(&session);
	ck_assert_int_eq(service_stop(&service), 0);
}

/*
 * Pinned memory
 */

/* The latest piece: addresses of earlier ones may be taken for a while. */
static uint64_t offset;

/* @ret_fd: the file of the memory, the caller's. Return: the answer's code */
static int pin(int *ret_fd)
{
	struct wire_message map = {.type = WIRE_MAP_HOST, .range = {.bytes = PIECE}};

	offset += PIECE;
	map.range.address = session.window_base + session.device_bytes + offset;
	return raw_ask(&session, &map, ret_fd);
}

static int unpin(void)
{
	struct wire_message unmap = {.type = WIRE_UNMAP_HOST,
		.range = {.address = session.window_base + session.device_bytes + offset, .bytes = PIECE}};

	return raw_ask(&session, &unmap, NULL);
}

static void *fill(int fd)
{
	void *at = mmap(NULL, PIECE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	ck_assert_ptr_ne(at, MAP_FAILED);
	memset(at, 1, PIECE);
	return at;
}

/* Keeps a descriptor of each, or with odd rows a mapping alone. */
START_TEST(freed_pinned_memory_that_is_kept_counts)
{
	void *at[PIECES];
	int fds[PIECES], fd;

	for (unsigned i = 0; i < PIECES; i++) {
		ck_assert_int_eq(pin(&fds[i]), CUDA_SUCCESS);
		at[i] = fill(fds[i]);
		if (_i)
			close(fds[i]);
		else
			munmap(at[i], PIECE);
		ck_assert_int_eq(unpin(), CUDA_SUCCESS);
	}
	ck_assert_int_eq(pin(&fd), CUDA_ERROR_OUT_OF_MEMORY);
	for (unsigned i = 0; i < PIECES; i++)
		ck_assert_int_eq(_i ? munmap(at[i], PIECE) : close(fds[i]), 0);
	ck_assert_int_eq(pin(&fd), CUDA_SUCCESS);
	close(fd);
}
END_TEST

/* The session is over, and the next one is its user's as well. */
START_TEST(pinned_memory_of_a_session_that_has_ended_counts)
{
	int fds[PIECES], fd;

	for (unsigned i = 0; i < PIECES; i++) {
		ck_assert_int_eq(pin(&fds[i]), CUDA_SUCCESS);
		munmap(fill(fds[i]), PIECE);
		if (i + 1 < PIECES)
			ck_assert_int_eq(unpin(), CUDA_SUCCESS);
	}
	raw_close(&session);
	wait_closed(&service);
	raw_open(&service, &session);
	ck_assert_int_eq(pin(&fd), CUDA_ERROR_OUT_OF_MEMORY);
	close(fds[0]);
	ck_assert_int_eq(pin(&fd), CUDA_SUCCESS);
	close(fd);
	for (unsigned i = 1; i < PIECES; i++)
		close(fds[i]);
}
END_TEST

static off_t blocks(int fd)
{
	struct stat status;

	ck_assert_int_eq(fstat(fd, &status), 0);
	return status.st_blocks;
}

/* A descriptor that gives no right to the file is not counted, and keeps no page. */
START_TEST(freed_pinned_memory_has_no_pages)
{
	char path[64];
	int fd, bare;

	ck_assert_int_eq(pin(&fd), CUDA_SUCCESS);
	munmap(fill(fd), PIECE);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	bare = open(path, O_PATH | O_CLOEXEC);
	ck_assert_int_ge(bare, 0);
	close(fd);
	ck_assert_int_gt(blocks(bare), 0);
	ck_assert_int_eq(unpin(), CUDA_SUCCESS);
	/* The answer comes before the pages go. */
	ck_assert_int_eq(pin(&fd), CUDA_SUCCESS);
	ck_assert_int_eq(blocks(bare), 0);
	close(fd);
	close(bare);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("descriptors");
	TCase *pinned = suite_case(suite, "pinned");

	tcase_set_timeout(pinned, 300);
	tcase_add_checked_fixture(pinned, start_limited, stop);
	tcase_add_loop_test(pinned, freed_pinned_memory_that_is_kept_counts, 0, 2);
	tcase_add_test(pinned, pinned_memory_of_a_session_that_has_ended_counts);
	tcase_add_test(pinned, freed_pinned_memory_has_no_pages);
	return suite_run(suite);
}
