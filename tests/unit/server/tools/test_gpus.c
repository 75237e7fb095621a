// The machine's GPUs, and the list of the service's where these are fewer.

#include "server/tools/gpus.h"

#include <string.h>

#include "tests/lib/folder.h"
#include "tests/lib/suite.h"

static char *folder;

static void set_up(void)
{
	folder = folder_enter();
}

TEST(gpus, device_files_are_counted)
{
	ck_assert_uint_eq(gpus_count(folder), 0);
	folder_shell("mkdir dev; touch dev/nvidiactl dev/nvidia-uvm dev/nvidia-modeset dev/null");
	ck_assert_uint_eq(gpus_count(folder), 0);
	folder_shell("touch dev/nvidia0 dev/nvidia3 dev/nvidia12");
	ck_assert_uint_eq(gpus_count(folder), 3);
}

TEST(gpus, fewer_than_the_machine_has_are_listed)
{
	struct ask_devices devices = {.count = 3, .uuid = {"GPU-a", "", "GPU-c"}};
	char list[GPUS_LIST_BYTES];

	ck_assert(gpus_list_fewer(&devices, 3, list));
	ck_assert_str_eq(list, "GPU-a,GPU-c");
	ck_assert(!gpus_list_fewer(&devices, 2, list));
	/* Unknown. */
	ck_assert(!gpus_list_fewer(&devices, 0, list));
	/* No device says who it is. */
	devices = (struct ask_devices){.count = 1};
	ck_assert(!gpus_list_fewer(&devices, 8, list));
}

TEST(gpus, there_is_room_for_all)
{
	struct ask_devices devices = {.count = PLACE_DEVICES};
	char list[GPUS_LIST_BYTES];

	for (unsigned i = 0; i < PLACE_DEVICES; i++)
		memset(devices.uuid[i], 'x', sizeof(devices.uuid[i]) - 1);
	ck_assert(gpus_list_fewer(&devices, PLACE_DEVICES + 1, list));
	ck_assert_uint_eq(strlen(list), GPUS_LIST_BYTES - 1);
}

int main(void)
{
	Suite *suite = suite_create("gpus");
	TCase *tests = suite_case(suite, "gpus");

	tcase_add_checked_fixture(tests, set_up, folder_leave);
	suite_add(tests, "gpus");
	return suite_run(suite);
}
