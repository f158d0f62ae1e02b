// The extension `sqlml`. It opens a connection to the database that loads it, and stores the
// connection where Python finds it (extension.py). Functions are registered on that connection.
typedef struct {
	void (*set_error)(void *info, const char *error);
	void **(*get_database)(void *info);
	const void *(*get_api)(void *info, const char *version);
} duckdb_extension_access;

#ifdef _WIN32
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED __attribute__((visibility("default")))
#endif

EXPORTED int (*sqlml_connect)(void *database, void **connection);
EXPORTED void *sqlml_connection;

// Connect now: DuckDB frees the database's wrapper when this function returns.
EXPORTED _Bool sqlml_init_c_api(void *info, duckdb_extension_access *access) {
	if (!access->get_api(info, "v1.2.0") || !sqlml_connect)
		return 0;
	void **database = access->get_database(info);
	return database && sqlml_connect(*database, &sqlml_connection) == 0;
}
