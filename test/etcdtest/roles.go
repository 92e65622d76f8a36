package etcdtest

import (
	"slices"
	"testing"

	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Grants are the permissions of a user: keys, and prefixes that end in a slash.
type Grants struct{ Read, Write []string }

// EnableRoles creates users, who are known by the common names of their certificates, and enables roles. No others than
// root have any permission after that.
func (c *Cluster) EnableRoles(t testing.TB, users map[string]Grants) {
	t.Helper()
	auth := pb.NewAuthClient(c.Conn())
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, grants := range users {
		_, err := auth.UserAdd(t.Context(), &pb.AuthUserAddRequest{Name: name, Options: &authpb.UserAddOptions{NoPassword: true}})
		check(err)
		_, err = auth.RoleAdd(t.Context(), &pb.AuthRoleAddRequest{Name: name})
		check(err)
		kinds := map[string]authpb.Permission_Type{}
		for _, key := range grants.Read {
			kinds[key] = authpb.Permission_READ
		}
		for _, key := range grants.Write {
			if slices.Contains(grants.Read, key) {
				kinds[key] = authpb.Permission_READWRITE // etcd keeps one permission for a range
				continue
			}
			kinds[key] = authpb.Permission_WRITE
		}
		for key, kind := range kinds {
			p := &authpb.Permission{PermType: kind, Key: []byte(key)}
			if key[len(key)-1] == '/' {
				p.RangeEnd = []byte(key)
				p.RangeEnd[len(key)-1]++
			}
			_, err := auth.RoleGrantPermission(t.Context(), &pb.AuthRoleGrantPermissionRequest{Name: name, Perm: p})
			check(err)
		}
		_, err = auth.UserGrantRole(t.Context(), &pb.AuthUserGrantRoleRequest{User: name, Role: name})
		check(err)
	}
	_, err := auth.UserAdd(t.Context(), &pb.AuthUserAddRequest{Name: "root", Options: &authpb.UserAddOptions{NoPassword: true}})
	check(err)
	_, err = auth.UserGrantRole(t.Context(), &pb.AuthUserGrantRoleRequest{User: "root", Role: "root"})
	check(err)
	_, err = auth.AuthEnable(t.Context(), &pb.AuthEnableRequest{})
	check(err)
}
