// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// See status.h.

#include "tests/system/status.h"

#include <check.h>
#include <stdlib.h>

json_t *status_of(const struct service *service)
{
	char *text = service_status(service);
	json_t *json = text ? json_loads(text, 0, NULL) : NULL;

	ck_assert_ptr_nonnull(json);
	free(text);
	return json;
}

int64_t status_counter(const struct service *service, const char *name)
{
	json_t *json = status_of(service), *value = json_object_get(json_object_get(json, "counters"), name);
	int64_t number = json_integer_value(value);

	ck_assert(json_is_integer(value));
	json_decref(json);
	return number;
}
