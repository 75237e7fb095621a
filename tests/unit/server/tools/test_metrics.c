// Metrics: what Prometheus reads of a status document.

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/session/cgroup.h"
#include "server/tools/metrics.h"
#include "tests/lib/suite.h"

static const char document[] =
	"{\"version\":\"1\",\"backend\":\"cuda\",\"uptime_seconds\":7,\"keeper\":null,"
	"\"device\":{\"name\":\"H\",\"total_bytes\":100,\"state\":\"serving\"},"
	"\"counters\":{\"faults\":3,\"unheard_of\":4},\"events\":{\"verdict\":3,\"limit\":0},"
	"\"driver_loads\":{\"cubin\":5},"
	"\"swap\":{\"bytes\":33,\"most_bytes\":99,\"directory_bytes\":44,\"stash_bytes\":22,\"users\":["
	"{\"uid\":1000,\"bytes\":30,\"most_bytes\":50,\"directory_bytes\":0},"
	"{\"uid\":1001,\"bytes\":3,\"most_bytes\":60,\"directory_bytes\":44}]},"
	"\"partitions\":[{\"name\":\"GPU-1/"
	"2\",\"chunks\":3,\"multiprocessors\":24,\"clients\":2}],\"domains\":["
	"{\"uid\":null,\"unpinning_bytes\":0,\"executors\":[{\"pid\":5,\"role\":\"active\",\"state\":"
	"\"warm\"}],\"clients\":[]},"
	"{\"uid\":1000,\"unpinning_bytes\":9,\"executors\":[{\"pid\":6,\"role\":\"standby\",\"state\":"
	"\"warm\",\"contains\":true},{\"pid\":7,\"role\":\"active\",\"state\":\"active\",\"contains\":false}]"
	",\"clients\":["
	"{\"session\":1,\"pid\":10,\"uid\":1000,\"program\":\"a "
	"\\\"b\\\\\\nc\",\"state\":\"running\",\"memory_bytes\":11,"
	"\"cgroup\":\"/kubepods.slice/kubepods-pod01234567_89ab_cdef_0123_456789abcdef.slice\"},"
	"{\"session\":2,\"pid\":20,\"uid\":1000,\"program\":\"d\",\"state\":\"held\",\"memory_bytes\":22,"
	"\"cgroup\":null}]}]}";

static char *render(const char *json)
{
	json_t *status = json_loads(json, 0, NULL);
	char *text;

	ck_assert_ptr_nonnull(status);
	text = metrics_text(&status, 1);
	ck_assert_ptr_nonnull(text);
	json_decref(status);
	return text;
}

static void expect(const char *text, const char *line)
{
	char whole[1024];

	snprintf(whole, sizeof(whole), "\n%s\n", line);
	ck_assert_msg(strstr(text, whole), "no line '%s' in:\n%s", line, text);
}

TEST(metrics, a_session_is_labelled_by_what_runs_it)
{
	char *text = render(document);

	expect(text, "frmps_session_device_memory_bytes{session=\"1\",pid=\"10\",uid=\"1000\","
		     "program=\"a \\\"b\\\\\\nc\","
		     "cgroup=\"/kubepods.slice/kubepods-pod01234567_89ab_cdef_0123_456789abcdef.slice\","
		     "pod_uid=\"01234567-89ab-cdef-0123-456789abcdef\"} 11");
	expect(text,
		"frmps_session_device_memory_bytes{session=\"2\",pid=\"20\",uid=\"1000\",program=\"d\"} 22");
	expect(text,
		"frmps_session_state{session=\"2\",pid=\"20\",uid=\"1000\",program=\"d\",state=\"held\"} 1");
	free(text);
}

TEST(metrics, what_the_service_says_of_itself)
{
	char *text = render(document);

	expect(text, "frmps_info{version=\"1\",backend=\"cuda\",device=\"H\"} 1");
	expect(text, "frmps_uptime_seconds 7");
	expect(text, "frmps_device_failed 0");
	expect(text, "frmps_device_drained 0");
	expect(text, "frmps_faults_total 3");
	expect(text, "frmps_events_total{kind=\"verdict\"} 3");
	expect(text, "frmps_events_total{kind=\"limit\"} 0");
	expect(text, "frmps_driver_loads_total{reason=\"cubin\"} 5");
	expect(text, "frmps_executor{uid=\"1000\",pid=\"6\",role=\"standby\",state=\"warm\"} 1");
	expect(text,
		"frmps_executor_contains_faults{uid=\"1000\",pid=\"6\",role=\"standby\",state=\"warm\"} 1");
	expect(text,
		"frmps_executor_contains_faults{uid=\"1000\",pid=\"7\",role=\"active\",state=\"active\"} 0");
	expect(text, "frmps_swap_host_memory_limit_bytes 99");
	expect(text, "frmps_stash_memory_bytes 22");
	expect(text, "frmps_swap_user_host_memory_bytes{uid=\"1000\"} 30");
	expect(text, "frmps_swap_user_host_memory_limit_bytes{uid=\"1001\"} 60");
	expect(text, "frmps_swap_user_directory_bytes{uid=\"1001\"} 44");
	expect(text, "frmps_partition_multiprocessors{partition=\"GPU-1/2\"} 24");
	expect(text, "frmps_partition_sessions{partition=\"GPU-1/2\"} 2");
	/* Nobody's yet, and not known to this version. */
	ck_assert_ptr_null(strstr(text, "pid=\"5\""));
	ck_assert_ptr_null(strstr(text, "unheard_of"));
	/* Of another version: the service does not count it. */
	ck_assert_ptr_null(strstr(text, "frmps_promotions_total"));
	free(text);
}

/* The format wants each name once, all of its samples behind it. */
TEST(metrics, each_name_is_explained_once)
{
	char *text = render(document), *rest = text, *line, name[128];
	char seen[64][128];
	unsigned count = 0;

	while ((line = strsep(&rest, "\n"))) {
		if (sscanf(line, "# TYPE %127s", name) == 1) {
			for (unsigned i = 0; i < count; i++)
				ck_assert_str_ne(seen[i], name);
			ck_assert_uint_lt(count, 64);
			strcpy(seen[count++], name);
		} else if (*line && *line != '#') {
			ck_assert_uint_gt(count, 0);
			ck_assert_int_eq(strncmp(line, seen[count - 1], strlen(seen[count - 1])), 0);
			ck_assert(strchr("{ ", line[strlen(seen[count - 1])]));
		}
	}
	ck_assert_uint_gt(count, 10);
	free(text);
}

/* What has one name stands together, and each sample says of which device it is. */
TEST(metrics, several_devices_are_one_text)
{
	json_t *statuses[3] = {json_loads(document, 0, NULL), NULL, json_loads(document, 0, NULL)};
	char *text = metrics_text(statuses, 3), *at;

	ck_assert_ptr_nonnull(text);
	ck_assert(strstr(text, "\nfrmps_up{gpu=\"0\"} 1\nfrmps_up{gpu=\"1\"} 0\nfrmps_up{gpu=\"2\"} 1\n"));
	ck_assert(strstr(text, "\nfrmps_info{gpu=\"2\",version=\"1\",backend=\"cuda\",device=\"H\"} 1\n"));
	ck_assert(strstr(text, "\nfrmps_faults_total{gpu=\"0\"} 3\nfrmps_faults_total{gpu=\"2\"} 3\n"));
	at = strstr(text, "# TYPE frmps_info ");
	ck_assert_ptr_nonnull(at);
	ck_assert_ptr_null(strstr(at + 1, "# TYPE frmps_info "));
	free(text);
	json_decref(statuses[0]);
	json_decref(statuses[2]);
}

TEST(metrics, without_a_service_it_is_down)
{
	char *text = metrics_text(&(json_t *){NULL}, 1);

	expect(text, "frmps_up 0");
	ck_assert_ptr_null(strstr(text, "frmps_info"));
	free(text);
}

TEST(metrics, a_control_group_of_either_version_is_found)
{
	char both[] = "12:cpu,cpuacct:/old\n1:name=systemd:/older\n0::/new:with a colon\n";
	char first[] = "12:devices:/first\n11:cpu:/second\n", broken[] = "nothing\n";
	char text[CGROUP_MAX], deep[CGROUP_MAX + 8] = "0::";

	ck_assert(cgroup_parse(both, text));
	ck_assert_str_eq(text, "/new:with a colon");
	ck_assert(cgroup_parse(first, text));
	ck_assert_str_eq(text, "/first");
	ck_assert(!cgroup_parse(broken, text));
	memset(deep + 3, '/', CGROUP_MAX - 1);
	ck_assert(cgroup_parse(deep, text));
	ck_assert_uint_eq(strlen(text), CGROUP_MAX - 1);
	/* The beginning of a path is another one. */
	memset(deep + 3, '/', CGROUP_MAX);
	ck_assert(!cgroup_parse(deep, text));
	ck_assert(cgroup_of(getpid(), text));
	ck_assert(!cgroup_of(0, text));
}

int main(void)
{
	Suite *suite = suite_create("metrics");
	TCase *metrics = suite_case(suite, "metrics");

	suite_add(metrics, "metrics");
	return suite_run(suite);
}
