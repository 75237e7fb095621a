// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: The frmps authors
//
// See status.h.

#include "tests/system/status.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

pid_t status_active(const struct service *service)
{
	json_t *json = status_of(service), *domain, *executor;
	pid_t pid = 0;
	size_t i, j;

	json_array_foreach (json_object_get(json, "domains"), i, domain)
		json_array_foreach (json_object_get(domain, "executors"), j, executor)
			if (!strcmp(json_string_value(json_object_get(executor, "role")), "active"))
				pid = (pid_t)json_integer_value(json_object_get(executor, "pid"));
	json_decref(json);
	ck_assert_int_gt(pid, 0);
	return pid;
}

/* 0: the program has no session. */
static long long number_of(const struct service *service, pid_t pid, const char *name)
{
	json_t *json = status_of(service), *domain, *client;
	long long number = 0;
	size_t i, j;

	json_array_foreach (json_object_get(json, "domains"), i, domain)
		json_array_foreach (json_object_get(domain, "clients"), j, client)
			if (json_integer_value(json_object_get(client, "pid")) == pid)
				number = json_integer_value(json_object_get(client, name));
	json_decref(json);
	return number;
}

long long status_session(const struct service *service, pid_t pid)
{
	return number_of(service, pid, "session");
}

void status_await_commands(const struct service *service, pid_t pid, long long least)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	time_t begin = time(NULL);

	while (number_of(service, pid, "commands") < least) {
		ck_assert_msg(time(NULL) - begin < 60, "%d does not get to %lld commands", (int)pid, least);
		nanosleep(&pause, NULL);
	}
}
