// See arena.h.

#include "server/executor/arena.h"

#include "server/executor/executor.h"
#include "server/executor/tenant.h"

/* Each has a bit. */
#define PARTS_MOST 64u

static uint64_t part_bytes(const struct tenant *tenant)
{
	const uint64_t least = (tenant->view.shape.arena_bytes + PARTS_MOST - 1) / PARTS_MOST;

	return least > SHM_ARENA_PART_BYTES ? least : SHM_ARENA_PART_BYTES;
}

static uint64_t bytes_of(const struct tenant *tenant, uint64_t part)
{
	const uint64_t most = part_bytes(tenant), left = tenant->view.shape.arena_bytes - part * most;

	return left < most ? left : most;
}

static void *part_at(const struct tenant *tenant, uint64_t part)
{
	return tenant->view.arena + part * part_bytes(tenant);
}

bool arena_admits(const struct tenant *tenant, uint64_t offset, uint64_t bytes)
{
	const uint64_t room = tenant->view.shape.arena_bytes, part = part_bytes(tenant);

	return offset <= room && bytes <= room - offset &&
	       (!bytes || offset / part == (offset + bytes - 1) / part);
}

CUresult arena_reach(struct tenant *tenant, uint64_t address)
{
	const uint64_t offset = address - (uintptr_t)tenant->view.arena;
	uint64_t part;
	CUresult code;

	if (offset >= tenant->view.shape.arena_bytes)
		return CUDA_SUCCESS;
	part = offset / part_bytes(tenant);
	if (tenant->arena_parts >> part & 1)
		return CUDA_SUCCESS;
	code = executor_code(tenant->executor,
		tenant_ops(tenant)->host_register(part_at(tenant, part), bytes_of(tenant, part)));
	if (!code)
		tenant->arena_parts |= UINT64_C(1) << part;
	return code;
}

uint64_t arena_bytes(const struct tenant *tenant)
{
	uint64_t bytes = 0;

	for (uint64_t left = tenant->arena_parts; left; left &= left - 1)
		bytes += bytes_of(tenant, (uint64_t)__builtin_ctzll(left));
	return bytes;
}

void arena_leave(struct tenant *tenant)
{
	for (; tenant->arena_parts; tenant->arena_parts &= tenant->arena_parts - 1)
		executor_code(tenant->executor, tenant_ops(tenant)->host_unregister(part_at(tenant,
							(uint64_t)__builtin_ctzll(tenant->arena_parts))));
}
