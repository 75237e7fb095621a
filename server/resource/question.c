// Questions, which make nothing: free memory, and the encoding of tensor maps.

#include "server/resource/resource.h"

#include "server/resource/check.h"
#include "server/session/request.h"

static int check_tensor_map(struct check *check, const struct wire_message *message)
{
	const struct wire_tensor_map *map = &message->tensor_map;
	bool is_encoded = map->kind == 2;

	if (map->kind > 2 || is_encoded != (map->map.count > 0))
		return check_broken(check, "kind of tensor map is unknown or does not fit");
	if (is_encoded)
		return 0;
	if (!map->rank || map->rank > WIRE_TENSOR_RANK_MAX || map->dims.count != map->rank ||
		map->strides.count + 1 != map->rank || map->element_strides.count != map->rank)
		return check_broken(check, "tensor map has a wrong rank");
	if (map->kind == 0 && map->box.count != map->rank)
		return check_broken(check, "box of a tensor map has a wrong rank");
	if (map->kind == 1 &&
		(map->rank < 3 || map->lower.count + 2 != map->rank || map->upper.count + 2 != map->rank))
		return check_broken(check, "corners of a tensor map have a wrong rank");
	return 0;
}

static const char *memory_flaw(const struct request *request, const struct wire_u64s *values)
{
	(void)request;
	return values->count >= 2 && values->at[0] <= values->at[1] ? NULL
								    : "has more memory free than there is";
}

const struct resource resource_question_memory = {.flaw = memory_flaw};
const struct resource resource_question_tensor_map = {.check = check_tensor_map};
