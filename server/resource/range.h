// Common parts of mapped ranges of device memory and of host memory.

#ifndef FRMPS_SERVER_RESOURCE_RANGE_H
#define FRMPS_SERVER_RESOURCE_RANGE_H

#include "server/resource/resource.h"

/* As in struct resource. */
int range_fill(struct holding *entry, const struct wire_message *message, const struct wire_u64s *values);
void range_again(const struct holding *entry, struct wire_message *ret_message);
bool range_has(const struct holdings *holdings, const struct wire_message *message);

#endif
