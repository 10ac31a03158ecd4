//! What the client needs to know of an object of which we read only some fields.

/// `resource!(Type, Scope, kind, group, version, plural)`; the type has its metadata in `meta`.
macro_rules! resource {
    ($type:ty, $scope:ty, $kind:expr, $group:expr, $version:expr, $plural:expr) => {
        impl ::kube::Resource for $type {
            type DynamicType = ();
            type Scope = $scope;

            fn kind(_: &()) -> ::std::borrow::Cow<'_, str> {
                $kind.into()
            }

            fn group(_: &()) -> ::std::borrow::Cow<'_, str> {
                $group.into()
            }

            fn version(_: &()) -> ::std::borrow::Cow<'_, str> {
                $version.into()
            }

            fn plural(_: &()) -> ::std::borrow::Cow<'_, str> {
                $plural.into()
            }

            fn meta(&self) -> &ObjectMeta {
                &self.meta
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.meta
            }
        }
    };
}
