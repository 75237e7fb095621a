// Limits of a context (cuCtxSetLimit) that kernels fail without.

#include "server/resource/resource.h"

#include "server/backend/backend.h"
#include "server/resource/check.h"
#include "server/session/holdings.h"

/* Those that kernels fail without. */
static bool is_needed(uint32_t limit)
{
	return limit == CU_LIMIT_STACK_SIZE || limit == CU_LIMIT_MALLOC_HEAP_SIZE ||
	       limit == CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH || limit == CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT;
}

static int check_set(struct check *check, const struct wire_message *message)
{
	const struct wire_limit *wish = &message->limit;
	uint64_t growth = holdings_limit_growth(check->holdings, wish);

	if (!is_needed(wish->limit))
		return check_broken(check, "a limit that is none of a context's");
	if (wish->value > INT64_MAX)
		return check_answer(check, CUDA_ERROR_INVALID_VALUE);
	/* While requested, the growth counts as held: an impossible growth must not cause refusals
	 * for others. */
	if (growth > check->holdings->device->total_bytes)
		return check_answer(check, CUDA_ERROR_OUT_OF_MEMORY);
	return check_memory_limit(check, growth);
}

static int fill(struct holding *entry, const struct wire_message *message, const struct wire_u64s *values)
{
	(void)values;
	entry->attribute = message->limit.limit;
	entry->value = (int64_t)message->limit.value;
	entry->range.bytes = holdings_limit_bytes(entry->holdings, &message->limit);
	return 0;
}

static void again(const struct holding *entry, struct wire_message *message)
{
	message->limit = (struct wire_limit){entry->attribute, (uint64_t)entry->value};
}

static struct holding *find(const struct holdings *holdings, const struct wire_message *message)
{
	struct holding *entry;

	TAILQ_FOREACH (entry, &holdings->entries, link)
		if (entry->type == WIRE_SET_LIMIT && entry->attribute == message->limit.limit)
			break;
	return entry;
}

static void change(struct holdings *holdings, struct holding *entry, const struct wire_message *message)
{
	entry->value = (int64_t)message->limit.value;
	holdings_set_limit(holdings, entry, &message->limit);
}

const struct resource resource_context_limit_set = {
	.check = check_set, .fill = fill, .again = again, .find_same = find, .change = change};
