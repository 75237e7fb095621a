// The list of a service's devices.

#include "server/config/devices.h"

#include <string.h>

#include "protocol/uuid.h"
#include "server/backend/unfit.h"
#include "tests/lib/suite.h"

#define COUNT 4

static const uint8_t uuids[COUNT][16] = {
	{0x11, 0x22, 0x33, 0x44, 0x55},
	{0x11, 0x22, 0x33, 0x44, 0x66},
	{0xab, 0xcd, 0xef},
	{0xfe},
};

static const uint8_t fit[COUNT], two_unfit[COUNT] = {0, UNFIT_PROHIBITED, 0, UNFIT_SILENT};
static const struct devices_there there = {COUNT, uuids, fit}, two = {COUNT, uuids, two_unfit};

static struct devices devices;
static char text[256];

TEST(devices, lists_name_devices_in_their_order)
{
	static const struct {
		const char *list;
		unsigned count;
		int index[4];
		unsigned copy[4];
	} rows[] = {
		{"all", 4, {0, 1, 2, 3}, {0}},
		{"2", 1, {2}, {0}},
		{"3,0", 2, {3, 0}, {0}},
		{" 1 ,\t2 ", 2, {1, 2}, {0}},
		{"0,0,1,0", 4, {0, 0, 1, 0}, {0, 1, 0, 2}},
		{"GPU-abcd", 1, {2}, {0}},
		{"GPU-11223344-66,2,GPU-abcdef00-0000-0000-0000-000000000000", 3, {1, 2, 2}, {0, 0, 1}},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		ck_assert_msg(!devices_check(rows[i].list, text, sizeof(text)), "%s: %s", rows[i].list, text);
		ck_assert_msg(!devices_find(rows[i].list, &there, &devices, text, sizeof(text)), "%s: %s",
			rows[i].list, text);
		ck_assert_uint_eq(devices.count, rows[i].count);
		for (unsigned k = 0; k < devices.count; k++) {
			ck_assert_int_eq(devices.list[k].index, rows[i].index[k]);
			ck_assert_uint_eq(devices.list[k].copy, rows[i].copy[k]);
			ck_assert_uint_eq(devices.list[k].place, k);
		}
	}
}

/* Also without the driver: frmps-server --check-config has none. */
TEST(devices, wrong_lists_are_named)
{
	static const char *const rows[][2] = {
		{"first", "devices: \"first\" is neither a number nor a UUID (GPU-…), nor all"},
		{"0,", "devices: \"\" is neither a number nor a UUID (GPU-…), nor all"},
		{"0,-1", "devices: \"-1\" is neither a number nor a UUID (GPU-…), nor all"},
		{"all,0", "devices: \"all\" is neither a number nor a UUID (GPU-…), nor all"},
		{"GPU-", "devices: \"GPU-\" is neither a number nor a UUID (GPU-…), nor all"},
		{"MIG-abcd", "devices: \"MIG-abcd\" is a MIG device: the service serves whole GPUs"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		ck_assert_int_eq(devices_check(rows[i][0], text, sizeof(text)), DEVICES_E_WRONG);
		ck_assert_str_eq(text, rows[i][1]);
	}
}

TEST(devices, devices_that_are_not_there_are_named)
{
	ck_assert_int_eq(devices_find("0,4", &there, &devices, text, sizeof(text)), DEVICES_E_WRONG);
	ck_assert_str_eq(text, "devices: \"4\" is no device: there are 4, from 0");
	ck_assert_int_eq(devices_find("GPU-1122,0", &there, &devices, text, sizeof(text)), DEVICES_E_WRONG);
	ck_assert_str_eq(text, "devices: \"GPU-1122\" is the beginning of no UUID, or of several");
}

/* The places of the others are as if they were there. */
TEST(devices, all_leaves_out_what_cannot_be_served)
{
	ck_assert_int_eq(devices_find("all", &two, &devices, text, sizeof(text)), 0);
	ck_assert(devices.is_all);
	ck_assert_uint_eq(devices.count, 2);
	for (unsigned i = 0; i < 2; i++) {
		ck_assert_int_eq(devices.list[i].index, 2 * (int)i);
		ck_assert_uint_eq(devices.list[i].place, 2 * i);
		ck_assert_int_eq(devices.left[i].index, 2 * (int)i + 1);
		ck_assert_mem_eq(devices.left[i].uuid, uuids[2 * i + 1], 16);
	}
	ck_assert_uint_eq(devices.left_count, 2);
	ck_assert_uint_eq(devices.left[0].unfit, UNFIT_PROHIBITED);
	ck_assert_uint_eq(devices.left[1].unfit, UNFIT_SILENT);
}

TEST(devices, a_list_names_what_can_be_served)
{
	const uint8_t none_fit[] = {UNFIT_VIRTUAL, UNFIT_SILENT};
	const struct devices_there none = {2, uuids, none_fit};

	ck_assert_int_eq(devices_find("2,0", &two, &devices, text, sizeof(text)), 0);
	ck_assert_uint_eq(devices.left_count, 0);
	ck_assert_int_eq(devices_find("0,GPU-fe", &two, &devices, text, sizeof(text)), DEVICES_E_UNFIT);
	ck_assert_str_eq(text, "devices: GPU 3 cannot be served: the driver gives no answer about it");
	ck_assert_int_eq(devices_find("all", &none, &devices, text, sizeof(text)), DEVICES_E_UNFIT);
	ck_assert_uint_eq(devices.left_count, 2);
	ck_assert_int_eq(strncmp(text, "devices: GPU 0 cannot be served: ", 33), 0);
}

TEST(devices, there_is_a_most)
{
	char list[2 * PLACE_DEVICES + 2] = "0";

	for (unsigned i = 1; i < PLACE_DEVICES; i++)
		strcat(list, ",0");
	ck_assert_int_eq(devices_find(list, &there, &devices, text, sizeof(text)), 0);
	ck_assert_uint_eq(devices.list[PLACE_DEVICES - 1].copy, PLACE_DEVICES - 1);
	strcat(list, ",0");
	ck_assert_int_eq(devices_find(list, &there, &devices, text, sizeof(text)), DEVICES_E_WRONG);
	ck_assert_str_eq(text, "devices: more than 64");
}

TEST(devices, copies_have_uuids_of_their_own)
{
	uint8_t all[PLACE_DEVICES][16];
	char name[UUID_TEXT];

	for (unsigned i = 0; i < PLACE_DEVICES; i++)
		devices_uuid(uuids[2], i, all[i]);
	ck_assert_mem_eq(all[0], uuids[2], 16);
	for (unsigned i = 0; i < PLACE_DEVICES; i++) {
		uuid_text(all[i], name);
		ck_assert_int_eq(
			uuid_find(name, strlen(name), PLACE_DEVICES, (const uint8_t(*)[16])all), (int)i);
	}
}

int main(void)
{
	Suite *suite = suite_create("devices");
	TCase *tests = suite_case(suite, "devices");

	suite_add(tests, "devices");
	return suite_run(suite);
}
